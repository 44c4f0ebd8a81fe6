package device

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// outcome is what a program left behind.
type outcome struct {
	stdout      []byte
	stderr, log string
	// peak is the largest resident memory in bytes, 0 if unknown. It is read from /proc five times a second.
	peak int64
}

// script runs a program in a directory of its own, where it leaves the files out, err, log and status. Android keeps the messages
// of some builds in its log; where there is no logcat that file is empty. The program is ended when the directory is removed or
// the script is, so that nothing goes on after an interrupt. A message to a connection that is closed would end the script first.
const script = `exec >/dev/null 2>&1
cd %s || exit
rm -rf run && mkdir run || exit
LD_LIBRARY_PATH=%s %s >run/out 2>run/err </dev/null &
pid=$!
trap 'kill $pid' HUP INT TERM
while grep VmHWM /proc/$pid/status >run/now; do mv run/now run/peak; sleep 0.2 || sleep 1; done
[ -d run ] || kill $pid
wait $pid
echo $? >run/status
logcat -d -v raw --pid=$pid -s MNNJNI >run/log
true`

// execute runs a program of the engine with arguments, which are files of the working directory or numbers.
func (a *ADB) execute(ctx context.Context, engineDir, work, program string, args ...string) (*outcome, error) {
	command := quote(path.Join(engineDir, program)) + " " + words(args)
	_, code, err := a.Shell(ctx, fmt.Sprintf(script, quote(work), quote(engineDir), command))
	if err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, problem("", "%s of the device cannot be used", work)
	}
	tmp, err := os.MkdirTemp("", "llmexport-run")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	local := filepath.Join(tmp, "run")
	if err := a.Pull(ctx, path.Join(work, "run"), local); err != nil {
		return nil, err
	}
	return readOutcome(local, program)
}

// readOutcome reads the files of script. A program that did not end by itself with code 0 is an [*engineError].
func readOutcome(dir, program string) (*outcome, error) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "" // an empty file can be missing
		}
		return string(b)
	}
	o := &outcome{stdout: []byte(read("out")), stderr: read("err"), log: read("log")}
	if _, v, ok := strings.Cut(read("peak"), ":"); ok {
		o.peak = kilobytes(v)
	}
	status, err := strconv.Atoi(strings.TrimSpace(read("status")))
	if err != nil {
		return nil, fmt.Errorf("%s: the device did not report how it ended", program)
	}
	if status != 0 {
		return nil, &engineError{program, o.failure(status)}
	}
	return o, nil
}

// signals are those that end programs, with their usual causes.
var signals = map[int]string{
	4: "SIGILL: the engine was built for a newer processor", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
	9: "SIGKILL: the device probably ran out of memory", 11: "SIGSEGV", 15: "SIGTERM",
}

// failure describes a program that ended with a status of a shell, which is 128 and the signal if there was one.
func (o *outcome) failure(status int) string {
	said := shorten(strings.TrimSpace(o.stderr + "\n" + o.log + "\n" + string(o.stdout)))
	if o.stderr != "" {
		said = shorten(o.stderr)
	}
	text := fmt.Sprintf("ended with exit code %d", status)
	if status > 128 {
		text = fmt.Sprintf("was ended by signal %d", status-128)
		if name := signals[status-128]; name != "" {
			text = "was ended by " + name
		}
	}
	if said != "" {
		text += fmt.Sprintf("; it printed %q", said)
	}
	return text
}
