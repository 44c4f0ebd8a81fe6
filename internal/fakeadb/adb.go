// Package fakeadb has programs for tests: one behaves as Android's adb does, with this computer as the device, and the others
// are the programs of a device that this computer lacks. [Programs] lists them.
//
// The directory named by the variable FAKEADB configures them. Its files, all optional:
//
//	devices  lines "serial<tab>state"; without the file one device, fake-1, is attached
//	props    lines "name=value" that getprop prints
//	faults   lines "operation fault"; see [faults]
//	runner   a command, in words, that starts the programs of the engine, such as qemu-aarch64
//	log      is written: a line for every call of adb
package fakeadb

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/llmexport/llmexport/internal/disk"
)

// State is the name of the variable with the directory.
const State = "FAKEADB"

// Programs are the programs by name. Each uses the arguments and the environment of the process, and ends it.
func Programs() map[string]func() {
	return map[string]func(){
		"adb":      func() { os.Exit(adb(os.Args[1:])) },
		"getprop":  func() { os.Exit(getprop(os.Args[1:])) },
		"logcat":   func() { os.Exit(logcat()) },
		"llm_demo": func() { os.Exit(demo(os.Args)) },
		"ppl_eval": func() { os.Exit(evaluate(os.Args)) },
	}
}

// The faults of operations:
//
//	push full      the storage is full after half of the file
//	push flip      a bit of the copy is wrong
//	shell closed   the connection ends
//	shell nosum    the device has no sha256sum
//	shell nospace  df reports a full file system
//	engine NAME    see demo
func fault(operation string) string {
	for _, line := range state("faults") {
		if name, f, _ := strings.Cut(line, " "); name == operation {
			return f
		}
	}
	return ""
}

// state returns the lines of a file of the state.
func state(name string) []string {
	b, err := os.ReadFile(filepath.Join(os.Getenv(State), name))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func complain(code int, format string, args ...any) int {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	return code
}

type attached struct{ serial, state string }

func devices() []attached {
	lines := state("devices")
	if lines == nil {
		return []attached{{"fake-1", "device"}}
	}
	var list []attached
	for _, line := range lines {
		if serial, st, ok := strings.Cut(line, "\t"); ok {
			list = append(list, attached{serial, st})
		}
	}
	return list
}

// adb prints and returns what adb 29 and later do.
func adb(args []string) int {
	if f, err := os.OpenFile(filepath.Join(os.Getenv(State), "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
		fmt.Fprintf(f, "adb %q\n", args)
		f.Close()
	}
	serial := ""
	if len(args) > 1 && args[0] == "-s" {
		serial, args = args[1], args[2:]
	}
	if len(args) == 0 {
		return complain(1, "Android Debug Bridge version 1.0.41")
	}
	if args[0] == "devices" {
		fmt.Fprintln(os.Stderr, "* daemon not running; starting now at tcp:5037\n* daemon started successfully")
		fmt.Println("List of devices attached")
		for _, d := range devices() {
			fmt.Printf("%s\t%s\n", d.serial, d.state)
		}
		fmt.Println()
		return 0
	}
	if problem := transport(serial); problem != "" {
		return complain(1, "error: %s", problem)
	}
	switch {
	case args[0] == "shell" && len(args) > 1:
		return shell(strings.Join(args[1:], " "), os.Stdout, os.Stderr)
	case args[0] == "push" && len(args) == 3:
		return push(args[1], args[2])
	case args[0] == "pull" && len(args) == 3:
		return pull(args[1], args[2])
	}
	return complain(1, "adb: unknown command %s", args[0])
}

// transport returns the reason why adb does not reach the device with a serial, or the only one.
func transport(serial string) string {
	list := devices()
	if serial == "" {
		switch len(list) {
		case 0:
			return "no devices/emulators found"
		case 1:
			serial = list[0].serial
		default:
			return "more than one device/emulator"
		}
	}
	for _, d := range list {
		switch {
		case d.serial != serial:
		case d.state == "device":
			return ""
		default:
			return "device " + d.state
		}
	}
	return fmt.Sprintf("device '%s' not found", serial)
}

// library is the variable in front of the engine's programs, after which the runner is put.
const library = "\nLD_LIBRARY_PATH="

// shell runs a script on the device.
func shell(script string, stdout, stderr io.Writer) int {
	switch fault("shell") {
	case "closed":
		fmt.Fprint(stdout, "half of an answer")
		fmt.Fprintln(stderr, "error: closed")
		return 1
	case "nosum":
		script = strings.ReplaceAll(script, "type sha256sum", "false")
	case "nospace":
		const full = `Filesystem 1K-blocks Used Available Use%% Mounted on\n/dev/block/dm-9\n 100 99 1 99%% /data\n`
		script = "df() { printf '" + full + "'; }\n" + script
	}
	if runner := state("runner"); runner != nil {
		if before, after, ok := strings.Cut(script, library); ok {
			dir, command, _ := strings.Cut(after, " ")
			script = before + "\n" + runner[0] + " -E LD_LIBRARY_PATH=" + dir + " " + command
		}
	}
	c := exec.Command("sh", "-c", script)
	c.Stdout, c.Stderr = stdout, stderr
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// fail prints a failure of a transfer where adb 29 prints it.
func fail(format string, args ...any) int {
	fmt.Printf(format+"\n", args...)
	fmt.Printf("%v: 0 files pushed, 0 skipped. 0.0 MB/s (446 bytes in 0.009s)\n", args[0])
	return 1
}

func push(local, remote string) int {
	if st, err := os.Stat(remote); err == nil && st.IsDir() {
		remote = path.Join(remote, filepath.Base(local))
	}
	b, err := os.ReadFile(local)
	if err != nil {
		return complain(1, "adb: error: cannot stat '%s': No such file or directory", local)
	}
	st, err := os.Stat(local)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(remote), 0o755)
	}
	size := len(b)
	switch fault("push") {
	case "full":
		size = len(b) / 2
	case "flip":
		if len(b) > 0 {
			b[len(b)/2] ^= 1
		}
	}
	if err == nil {
		err = os.WriteFile(remote, b[:size], st.Mode().Perm())
	}
	if err != nil {
		return fail("adb: error: failed to copy '%s' to '%s': remote couldn't create file: %v", local, remote, errors.Unwrap(err))
	}
	if size < len(b) {
		return fail("adb: error: failed to copy '%s' to '%s': remote write failed: No space left on device", local, remote)
	}
	fmt.Printf("%s: 1 file pushed, 0 skipped. 31.4 MB/s (%d bytes in 0.002s)\n", local, len(b))
	return 0
}

func pull(remote, local string) int {
	st, err := os.Stat(remote)
	if err != nil {
		return fail("adb: error: failed to stat remote object '%s': No such file or directory", remote)
	}
	if to, err := os.Stat(local); err == nil && to.IsDir() {
		local = filepath.Join(local, path.Base(remote))
	}
	files := 0
	if st.IsDir() {
		err = filepath.WalkDir(remote, func(p string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(remote, p)
			if err != nil {
				return err
			}
			if e.IsDir() {
				return os.MkdirAll(filepath.Join(local, rel), 0o755)
			}
			files++
			return disk.CopyFile(p, filepath.Join(local, rel))
		})
	} else {
		files, err = 1, disk.CopyFile(remote, local)
	}
	if err != nil {
		return fail("adb: error: failed to copy '%s' to '%s': %v", remote, local, err)
	}
	fmt.Printf("%s: %d files pulled, 0 skipped.\n", remote, files)
	return 0
}

func getprop(args []string) int {
	for _, line := range state("props") {
		if name, value, ok := strings.Cut(line, "="); ok && len(args) == 1 && name == args[0] {
			fmt.Println(value)
			return 0
		}
	}
	fmt.Println()
	return 0
}

// logcat prints what the engine has logged.
func logcat() int {
	b, err := os.ReadFile(logFile())
	if err != nil {
		return 0
	}
	_, _ = os.Stdout.Write(b)
	return 0
}

func logFile() string { return filepath.Join(os.Getenv(State), "logcat") }
