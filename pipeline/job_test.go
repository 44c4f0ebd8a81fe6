package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/recipes"
)

// notes is a run that counts what its stages have made.
type notes struct{ made int }

func (n *notes) Restart() { n.made = 0 }

func (n *notes) Follow() *Progress { return nil }

// fake is a stage that notes what happens to it.
type fake struct {
	name          string
	log           *[]string
	invalid, fail error
	skip          bool
	cancel        context.CancelFunc
}

func (f *fake) String() string { return f.name }

func (f *fake) Validate(context.Context, *notes) error {
	*f.log = append(*f.log, "validate "+f.name)
	return f.invalid
}

func (f *fake) Skip(*notes) (string, bool) { return "not wanted", f.skip }

func (f *fake) Run(context.Context, *notes) error {
	*f.log = append(*f.log, "run "+f.name)
	if f.cancel != nil {
		f.cancel()
	}
	return f.fail
}

func TestExecute(t *testing.T) {
	bad := errors.New("bad")
	positioned := &recipes.Error{File: "r.yaml", Message: "quantize.bits: bad"}
	for _, c := range []struct {
		name string
		a, b fake
		log  string
		err  string
	}{
		{"in order", fake{}, fake{}, "validate a, validate b, run a, run b", ""},
		{"all are validated before the first runs", fake{}, fake{invalid: bad}, "validate a, validate b", "bad"},
		{"a failure ends the job and is named", fake{fail: bad}, fake{}, "validate a, validate b, run a", "a: bad"},
		{"an error with a position names its section itself", fake{fail: positioned}, fake{}, "validate a, validate b, run a", positioned.Error()},
		{"skipped", fake{skip: true}, fake{}, "validate a, validate b, run b", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log []string
			c.a.name, c.a.log, c.b.name, c.b.log = "a", &log, "b", &log
			timings, err := Execute(t.Context(), &notes{}, []Stage[*notes]{&c.a, &c.b})
			if got := strings.Join(log, ", "); got != c.log {
				t.Errorf("happened: %s, want %s", got, c.log)
			}
			if text := errorText(err); text != c.err {
				t.Errorf("error %q, want %q", text, c.err)
			}
			if want := strings.Count(c.log, "run"); err == nil && len(timings) != want {
				t.Errorf("%d timings, want %d", len(timings), want)
			}
		})
	}
}

// A stage that has removed wrong bytes has all stages run once more, without the artifacts of the first time; a second such
// error is one.
func TestExecuteAgain(t *testing.T) {
	wrong := fmt.Errorf("wrong: %w", ErrAgain)
	for name, c := range map[string]struct {
		errs []error
		log  string
		err  error
	}{
		"mended": {[]error{wrong, nil}, "made 0, made 0", nil},
		"not":    {[]error{wrong, wrong}, "made 0, made 0", ErrAgain},
	} {
		var log []string
		run := &notes{}
		s := stageFunc(func() error {
			log = append(log, fmt.Sprint("made ", run.made))
			run.made++
			err := c.errs[0]
			c.errs = c.errs[1:]
			return err
		})
		if _, err := Execute(t.Context(), run, []Stage[*notes]{s}); !errors.Is(err, c.err) || strings.Join(log, ", ") != c.log {
			t.Errorf("%s: %v, %v", name, log, err)
		}
	}
}

type stageFunc func() error

func (stageFunc) String() string                      { return "func" }
func (f stageFunc) Run(context.Context, *notes) error { return f() }

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestExecuteCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var log []string
	_, err := Execute(ctx, &notes{}, []Stage[*notes]{&fake{name: "a", log: &log, cancel: cancel}, &fake{name: "b", log: &log}})
	if !errors.Is(err, context.Canceled) || strings.Contains(strings.Join(log, " "), "run b") {
		t.Errorf("%v after %v", err, log)
	}
}

// The stages up to a name are a prefix of the list, and run like all of them.
func TestUntil(t *testing.T) {
	var log []string
	a, b, c := &fake{name: "a", log: &log}, &fake{name: "b", log: &log}, &fake{name: "c", log: &log}
	all := []Stage[*notes]{a, b, c}
	some, err := Until(all, "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Execute(t.Context(), &notes{}, some); err != nil || strings.Join(log, ", ") != "validate a, validate b, run a, run b" {
		t.Errorf("%v, %v", log, err)
	}
	if _, err := Until(all, "d"); err == nil || err.Error() != `there is no stage "d"; the stages are a, b, c` {
		t.Error(err)
	}
}
