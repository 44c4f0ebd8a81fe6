package calibrate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// lethal is a source that ends the process when it has been opened so often.
type lethal struct {
	tensor.Source
	left atomic.Int64
}

func (l *lethal) Open(name string) (*io.SectionReader, error) {
	if l.left.Add(-1) < 0 {
		killSelf()
	}
	return l.Source.Open(name)
}

func killSelf() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	panic(fmt.Sprint("not killed: ", err))
}

// killVariable asks TestQuantizeKilled for a process that dies: the directory, what is counted, and how often.
const killVariable = "CALIBRATE_TEST_KILL"

func killedChild(name, where string, n int, dir string) *exec.Cmd {
	c := exec.Command(os.Args[0], "-test.run=^"+name+"$")
	c.Env = append(os.Environ(), killVariable+"="+strings.Join([]string{where, strconv.Itoa(n), dir}, "\n"))
	return c
}

// killPoint is what killedChild asked for.
func killPoint() (where string, n int, dir string) {
	list := strings.SplitN(os.Getenv(killVariable), "\n", 3)
	if len(list) < 3 {
		return "", 0, ""
	}
	n, _ = strconv.Atoi(list[1])
	return list[0], n, list[2]
}

// wantKilled runs a process that must not survive.
func wantKilled(t *testing.T, c *exec.Cmd) {
	t.Helper()
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() > 0 || len(out) > 0 {
		t.Fatalf("the process was not killed: %v: %s", err, out)
	}
}

// Processes that are killed while foldings are chosen, while weights are read, and behind a matrix leave what a later run
// completes to the same bytes.
func TestQuantizeKilled(t *testing.T) {
	j := smallJobs(t)["llama-bias"]
	if where, n, dir := killPoint(); where != "" {
		j.Dir = dir
		if where == "open" {
			l := &lethal{Source: j.Source}
			l.left.Store(int64(n))
			j.Source = l
		} else {
			j.Progress = func(int64, int64) {
				if n--; n == 0 {
					killSelf()
				}
			}
		}
		_, err := Quantize(t.Context(), j.Options, j.Scheme)
		t.Fatalf("alive: %v", err)
	}
	dir := t.TempDir()
	opens := &lethal{Source: j.Source}
	opens.left.Store(1 << 30)
	counted := j
	counted.Source = opens
	f := counted.run(t, dir)
	want := content(t, dir)
	n := int(1<<30 - opens.left.Load())
	for _, c := range []struct {
		where string
		n     int
		least int // matrices that are finished
	}{{"open", n / 4, 0}, {"open", n - 3, 8}, {"progress", 9, 9}} {
		t.Run(fmt.Sprint(c.where, " ", c.n), func(t *testing.T) {
			dir := t.TempDir()
			wantKilled(t, killedChild("TestQuantizeKilled", c.where, c.n, dir))
			left, err := OpenFinished(dir, "")
			check(t, err)
			if n := len(left.Ops); n < c.least || n >= len(f.Ops) {
				t.Errorf("%d matrices were finished", n)
			}
			if g := j.run(t, dir); g.Digest() != f.Digest() {
				t.Error("other digest")
			}
			noActivations(t, dir)
			same(t, "continued", want, content(t, dir))
		})
	}
}
