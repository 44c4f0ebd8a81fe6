package device

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Error is a problem with adb, the device or the engine on it, with a hint about its solution.
type Error struct {
	text string
	Hint string
}

func (e *Error) Error() string { return e.text }

func problem(hint, format string, args ...any) error {
	return &Error{text: fmt.Sprintf(format, args...), Hint: hint}
}

// ChoiceError reports that several devices are attached and none was named.
type ChoiceError struct{ Serials []string }

func (e *ChoiceError) Error() string {
	return fmt.Sprintf("%d devices are attached: %s", len(e.Serials), strings.Join(e.Serials, ", "))
}

// ADB runs the program adb for one device.
type ADB struct{ path, serial string }

// Connect finds the program adb and the device with this serial, or the only device if serial is empty. It returns a
// [*ChoiceError] if there are several, and an [*Error] if there is none or it cannot be used.
func Connect(ctx context.Context, serial string) (*ADB, error) {
	path, err := locate()
	if err != nil {
		return nil, err
	}
	a := &ADB{path: path}
	out, stderr, err := a.command(ctx, "devices")
	if err != nil {
		return nil, adbError("devices", stderr, err)
	}
	list, err := parseDevices(string(out))
	if err != nil {
		return nil, err
	}
	a.serial, err = choose(list, cmp.Or(serial, os.Getenv("ANDROID_SERIAL")))
	return a, err
}

// locate finds adb on the PATH or in an Android SDK.
func locate() (string, error) {
	path, err := exec.LookPath("adb")
	if err == nil {
		return path, nil
	}
	for _, name := range []string{"ANDROID_HOME", "ANDROID_SDK_ROOT"} {
		if sdk := os.Getenv(name); sdk != "" {
			if path, err := exec.LookPath(filepath.Join(sdk, "platform-tools", "adb")); err == nil {
				return path, nil
			}
		}
	}
	return "", problem("install Android's platform tools and put adb on the PATH, or set ANDROID_HOME to the SDK", "adb was not found")
}

// attached is a line of adb devices.
type attached struct{ serial, state string }

const devicesHeader = "List of devices attached"

// parseDevices reads the output of adb devices: messages of the server, which begin with an asterisk, a header, and a line
// with serial, tab and state for each device.
func parseDevices(out string) ([]attached, error) {
	var list []attached
	header := false
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		if !header {
			if header = line == devicesHeader; !header && line != "" && !strings.HasPrefix(line, "*") {
				break
			}
			continue
		}
		if line == "" {
			continue
		}
		serial, state, ok := strings.Cut(line, "\t")
		if !ok || serial == "" || state == "" {
			return nil, fmt.Errorf("the output of adb devices was not understood: %q", line)
		}
		list = append(list, attached{serial, strings.TrimSpace(state)})
	}
	if !header {
		return nil, fmt.Errorf("the output of adb devices was not understood: %q", shorten(out))
	}
	return list, nil
}

// choose picks the device with a serial, or the only one.
func choose(list []attached, serial string) (string, error) {
	var serials []string
	for _, d := range list {
		serials = append(serials, d.serial)
		if d.serial == serial {
			return serial, usable(d)
		}
	}
	switch {
	case len(list) == 0:
		return "", problem("enable USB debugging in the developer options of the device and connect it, or run adb connect HOST:PORT",
			"no device is attached")
	case serial != "":
		return "", problem("adb devices lists the devices", "no device %s is attached; attached: %s", serial, strings.Join(serials, ", "))
	case len(list) > 1:
		return "", &ChoiceError{serials}
	}
	return list[0].serial, usable(list[0])
}

// usable returns an error unless a device takes commands.
func usable(d attached) error {
	state, _, _ := strings.Cut(d.state, " (")
	switch state {
	case "device":
		return nil
	case "unauthorized", "authorizing":
		return problem("unlock the device and confirm the question about USB debugging there; adb kill-server makes it ask again",
			"device %s is %s", d.serial, state)
	case "offline":
		return problem("connect the device again; adb kill-server or a restart of the device helps if it stays offline",
			"device %s is offline", d.serial)
	case "no permissions":
		return problem("udev rules give your account access to the device: https://developer.android.com/tools/device",
			"device %s cannot be opened: %s", d.serial, d.state)
	}
	return problem("start Android on the device", "device %s is in state %q, not in Android", d.serial, d.state)
}

// waitDelay is how long the output of adb may stay open after an interrupt: a server that it has started can hold it.
const waitDelay = 2 * time.Second

// command runs adb and returns what it prints.
func (a *ADB) command(ctx context.Context, args ...string) (stdout []byte, stderr string, err error) {
	if a.serial != "" {
		args = append([]string{"-s", a.serial}, args...)
	}
	var out, errs bytes.Buffer
	c := exec.CommandContext(ctx, a.path, args...)
	c.Stdout, c.Stderr = &out, &errs
	c.WaitDelay = waitDelay
	err = c.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out.Bytes(), strings.TrimSpace(errs.String()), err
}

// adbError explains a failure of adb itself.
func adbError(what, printed string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	text := cmp.Or(errorLine(printed), lastLine(printed), fmt.Sprint(err))
	hint := ""
	switch {
	case strings.Contains(printed, "No space left"):
		hint = "free space on the device"
	case strings.Contains(printed, "Permission denied"), strings.Contains(printed, "Read-only file system"):
		hint = "--dir names a directory where the shell of the device may write and start programs, such as " + DefaultDir
	case strings.Contains(printed, "device offline"), strings.Contains(printed, "not found"), strings.Contains(printed, "no devices"),
		strings.Contains(printed, "closed"), strings.Contains(printed, "connect failed"):
		hint = "the connection was lost; connect the device again"
	}
	return problem(hint, "adb %s: %s", what, text)
}

// exitLine ends the output of a script that Shell runs. Old devices do not return exit codes, and without the line the
// output is not whole.
var exitLine = regexp.MustCompile(`exit:([0-9]{1,3})\r?\n$`)

// Shell runs a script in the shell of the device and returns its standard output and exit code.
func (a *ADB) Shell(ctx context.Context, script string) (string, int, error) {
	out, stderr, err := a.command(ctx, "shell", "( "+script+"\n); echo exit:$?")
	if ctx.Err() != nil {
		return "", 0, err
	}
	m := exitLine.FindSubmatchIndex(out)
	if m == nil {
		return "", 0, adbError("shell", cmp.Or(stderr, "the connection ended within the output"), err)
	}
	code, _ := strconv.Atoi(string(out[m[2]:m[3]]))
	return strings.ReplaceAll(string(out[:m[0]]), "\r\n", "\n"), code, nil
}

// Push copies a local file to a path on the device.
func (a *ADB) Push(ctx context.Context, local, remote string) error {
	return a.transfer(ctx, "push", local, remote)
}

// Pull copies a file or directory of the device to a local path.
func (a *ADB) Pull(ctx context.Context, remote, local string) error {
	return a.transfer(ctx, "pull", remote, local)
}

func (a *ADB) transfer(ctx context.Context, command, from, to string) error {
	out, stderr, err := a.command(ctx, command, from, to)
	if err != nil {
		return adbError(command, stderr+"\n"+string(out), err) // adb prints failures of transfers as it prints progress
	}
	return nil
}

// quote makes a word of a shell out of any text without NUL.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// errorLine returns the last line that adb marks as an error, without the mark; a summary can follow it.
func errorLine(s string) string {
	found := ""
	for line := range strings.Lines(s) {
		if _, text, ok := strings.Cut(line, "error: "); ok {
			found = strings.TrimSpace(text)
		}
	}
	return found
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}

// shorten keeps the end of a text, where programs report what stopped them.
func shorten(s string) string {
	const most = 400
	if s = strings.TrimSpace(s); len(s) > most {
		s = "..." + s[len(s)-most:]
	}
	return strings.ToValidUTF8(s, "�")
}
