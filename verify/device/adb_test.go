package device

import (
	"errors"
	"strings"
	"testing"
)

// devicesOutput is what adb 29 prints with one device of each state.
const devicesOutput = "List of devices attached\nfake-1\tdevice\n192.168.0.9:5555\tunauthorized\n" +
	"0123\tno permissions (user in plugdev group; are your udev rules wrong?); see [http://developer.android.com/tools/device.html]\n\n"

func TestParseDevices(t *testing.T) {
	t.Parallel()
	list, err := parseDevices(devicesOutput)
	if err != nil || len(list) != 3 || list[0] != (attached{"fake-1", "device"}) || !strings.HasPrefix(list[2].state, "no perm") {
		t.Errorf("%v, %v", list, err)
	}
	list, err = parseDevices("* daemon not running; starting now at tcp:5037\r\n* daemon started successfully\r\n" +
		"List of devices attached\r\nx\tdevice\r\n\r\n")
	if err != nil || len(list) != 1 || list[0].state != "device" {
		t.Errorf("with messages of the server: %v, %v", list, err)
	}
	for _, bad := range []string{
		"", "error: cannot connect to daemon\n", "List of devices attached\nserial device\n", "Devices:\nx\tdevice\n",
	} {
		if list, err := parseDevices(bad); err == nil {
			t.Errorf("%q gives %v", bad, list)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	one := []attached{{"a", "device"}}
	two := []attached{{"a", "device"}, {"b", "offline"}}
	for name, tc := range map[string]struct {
		list         []attached
		serial, want string
		problem      string
	}{
		"only":         {list: one, want: "a"},
		"named":        {list: two, serial: "a", want: "a"},
		"none":         {problem: "no device is attached"},
		"unknown":      {list: two, serial: "c", problem: "no device c is attached; attached: a, b"},
		"several":      {list: two, problem: "2 devices are attached: a, b"},
		"offline":      {list: two, serial: "b", problem: "device b is offline"},
		"unauthorized": {list: []attached{{"a", "unauthorized"}}, problem: "device a is unauthorized"},
		"bootloader":   {list: []attached{{"a", "bootloader"}}, problem: `device a is in state "bootloader", not in Android`},
	} {
		got, err := choose(tc.list, tc.serial)
		if tc.problem == "" && (err != nil || got != tc.want) || tc.problem != "" && (err == nil || err.Error() != tc.problem) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		var e *Error
		if errors.As(err, &e) && e.Hint == "" {
			t.Errorf("%s: no hint", name)
		}
	}
}

func FuzzParseDevices(f *testing.F) {
	f.Add(devicesOutput)
	f.Fuzz(func(t *testing.T, out string) {
		list, err := parseDevices(out)
		if err != nil && list != nil {
			t.Error("devices with an error")
		}
		for _, d := range list {
			if d.serial == "" || strings.ContainsAny(d.serial, "\t\n") {
				t.Errorf("serial %q", d.serial)
			}
		}
	})
}

func TestParsePhone(t *testing.T) {
	t.Parallel()
	p := parsePhone("maker=Google\nmodel=Pixel 8\nandroid=15\nabis=arm64-v8a,armeabi-v7a\nmachine=aarch64\n" +
		"MemTotal:        7841234 kB\nMemFree:          134 kB\nMemAvailable:    3120000 kB\n")
	if p.Model != "Google Pixel 8" || p.ABI != "arm64-v8a" || len(p.ABIs) != 2 || p.Memory != 7841234<<10 || p.Available != 3120000<<10 {
		t.Errorf("%+v", p)
	}
	p = parsePhone("maker=\nmodel=\nandroid=\nabis=\nmachine=aarch64\nMemTotal: lots\n")
	if p.Model != "unnamed device" || p.ABI != "arm64-v8a" || p.Memory != 0 {
		t.Errorf("without properties: %+v", p)
	}
	if p = parsePhone("machine=vax\n"); len(p.ABIs) != 0 {
		t.Errorf("unknown machine: %+v", p)
	}
}

func FuzzParsePhone(f *testing.F) {
	f.Add("model=Pixel 8\nabis=arm64-v8a\nmachine=aarch64\nMemTotal: 7841234 kB\n")
	f.Fuzz(func(t *testing.T, out string) {
		if p := parsePhone(out); p.Model == "" || p.Memory < 0 || p.Available < 0 || (p.ABI == "") != (len(p.ABIs) == 0) {
			t.Errorf("%+v", p)
		}
	})
}

func TestParseFree(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		out  string
		want int64
		ok   bool
	}{
		"toybox": {"Filesystem     1K-blocks     Used Available Use% Mounted on\n" +
			"/dev/block/dm-9 112000000 50000000  62000000  45% /data\n", 62000000 << 10, true},
		"toolbox": {"Filesystem       Size     Used     Free   Blksize\n/data           25.0G    13.0G    12.0G   4096\n", 0, false},
		"wrapped": {"Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/mapper/long-name\n 100 40 60 40% /\n", 60 << 10, true},
		"empty":   {"", 0, false},
		"error":   {"df: /nowhere: No such file or directory\n", 0, false},
	} {
		if got, ok := parseFree(tc.out); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
}

func FuzzParseFree(f *testing.F) {
	f.Add("Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/block/dm-9 100 40 60 45% /data\n")
	f.Fuzz(func(t *testing.T, out string) {
		if n, ok := parseFree(out); n < 0 || !ok && n != 0 {
			t.Error(n, ok)
		}
	})
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(reboot)": "'$(reboot)'"} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"x\x003.6.1\x00y\x003.6.1\x00\x000.26.0\x00": "3.6.1", "\x003.6.1\x003.5.0\x00": "", "3.6.1": "", "\x003.6\x00": "", "": "",
	} {
		if got := releaseIn([]byte(in)); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	for _, tc := range []struct {
		a, b  string
		older bool
	}{
		{"3.5.0", "3.6.0", true}, {"3.6.1", "3.6.0", false}, {"3.6.0", "3.6.0", false}, {"3.9.0", "3.10.0", true},
		{"", "3.6.0", false}, {"3.6.0", "", false},
	} {
		if olderRelease(tc.a, tc.b) != tc.older {
			t.Errorf("%s before %s: %v", tc.a, tc.b, !tc.older)
		}
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	o := &outcome{stderr: "linker: no library\n", stdout: []byte("config path is x\n")}
	for status, want := range map[int]string{
		139: "was ended by SIGSEGV", 132: "was ended by SIGILL: the engine was built for a newer processor", 137: "ran out of memory",
		159: "was ended by signal 31", 127: "ended with exit code 127", 1: `it printed "linker: no library"`,
	} {
		if got := o.failure(status); !strings.Contains(got, want) {
			t.Errorf("%d: %s", status, got)
		}
	}
}

func TestADBError(t *testing.T) {
	t.Parallel()
	for printed, want := range map[string]string{
		// as adb 29 prints it
		"adb: error: failed to copy 'a' to '/x/a': remote write failed: No space left on device\na: 0 files pushed, 0 skipped.\n": "adb push: failed to " +
			"copy 'a' to '/x/a': remote write failed: No space left on device",
		"error: closed\n": "adb push: closed", "something else\n": "adb push: something else", "": "adb push: exit status 1",
	} {
		if got := adbError("push", printed, errors.New("exit status 1")).Error(); got != want {
			t.Errorf("%q: %s", printed, got)
		}
	}
}
