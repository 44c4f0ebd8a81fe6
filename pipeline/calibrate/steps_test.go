package calibrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/quant"
)

// smallMeasurement measures a random model of two layers with a head of its own.
func smallMeasurement(t *testing.T) (Options, Measuring) {
	t.Helper()
	d, src := openCheckpoint(t, familyDir("qwen3-untied"))
	d.Layers = d.Layers[:2]
	windows := randomText(d, 6, 16)
	gptq := quant.NewGPTQ()
	gptq.Candidates, gptq.Sweeps = 3, 1 // for speed
	o := newJob(t, d, src, windows[:4], gptq).Options
	o.Name = "sensitivities-0"
	o.Memory = 1 // one window of gradients at a time
	return o, measuring(t, windows[4:], gptq)
}

// Processes that are killed while gradients are computed, while options are compared and while groups are measured leave what a
// later run completes to the same numbers, without taking the finished steps again.
func TestMeasureKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	o, ms := smallMeasurement(t)
	if where, n, dir := killPoint(); where != "" {
		o.Dir = dir
		l := &lethal{Source: o.Source}
		l.left.Store(int64(n))
		o.Source = l
		_, err := Measure(t.Context(), o, ms)
		t.Fatalf("alive: %v", err)
	}
	count := func(dir string) (string, int64) {
		t.Helper()
		opens := &lethal{Source: o.Source}
		opens.left.Store(1 << 30)
		counted := o
		counted.Source, counted.Dir = opens, dir
		list, err := Measure(t.Context(), counted, ms)
		check(t, err)
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("files left: %v, %v", left, err)
		}
		return fmt.Sprintf("%+v", *list), 1<<30 - opens.left.Load()
	}
	want, whole := count(t.TempDir())
	before := 0
	for _, part := range []int64{15, 45, 60, 80, 95} { // percent of what is read
		dir := t.TempDir()
		wantKilled(t, killedChild("TestMeasureKilled", "open", int(whole*part/100), dir))
		s, err := openSteps(dir, o.Name)
		check(t, err)
		if n := len(s.finished); n < before {
			t.Errorf("%d %%: %d steps were finished, %d before", part, n, before)
		} else {
			before = n
		}
		check(t, s.journal.close())
		got, opened := count(dir)
		if got != want {
			t.Errorf("%d %%: other numbers:\n%s\n%s", part, want, got)
		}
		if part > 50 && opened >= whole {
			t.Errorf("%d %%: %d reads to continue, %d for the whole", part, opened, whole)
		}
	}
	if before < 10 {
		t.Errorf("only %d steps were finished in the end", before)
	}
}

// What is damaged is measured again.
func TestMeasureDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	o, ms := smallMeasurement(t)
	var total int64
	whole := o
	whole.Progress = func(_, n int64) { total = n }
	want := fmt.Sprintf("%+v", *measured(t, whole, ms))
	for _, c := range []struct {
		name   string
		damage func(dir string) error
	}{
		{"nothing", func(string) error { return nil }},
		{"a line cut", func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, measuredFile))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, measuredFile), b[:len(b)*2/3], 0o666))
		}},
		{"lines in another order", func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, measuredFile))
			lines := slices.Collect(bytes.Lines(b))
			slices.Reverse(lines[len(lines)-3:])
			return errors.Join(err, os.WriteFile(filepath.Join(dir, measuredFile), bytes.Join(lines, nil), 0o666))
		}},
		{"gradients", func(dir string) error {
			names, err := filepath.Glob(filepath.Join(dir, gradientPrefix+"*"))
			if len(names) != 1 {
				return fmt.Errorf("files of gradients: %v, %w", names, err)
			}
			b, err := os.ReadFile(names[0])
			b[len(b)/2] ^= 1
			return errors.Join(err, os.WriteFile(names[0], b, 0o666))
		}},
		{"an anchor", func(dir string) error { return os.Truncate(filepath.Join(dir, anchorsDir, "00002.codes"), 9) }},
		{"of another measurement", func(dir string) error {
			s, err := openSteps(dir, "another")
			return errors.Join(err, s.journal.close())
		}},
	} {
		for _, part := range []int64{60, 90} { // percent of the work
			stopped, lost := o, errors.New("lost")
			stopped.Dir = t.TempDir()
			_, err := Measure(cancelledAt(t, &stopped, total*part/100, lost), stopped, ms)
			if !errors.Is(err, lost) {
				t.Fatalf("%s, %d %%: %v", c.name, part, err)
			}
			check(t, c.damage(stopped.Dir))
			again := o
			again.Dir, again.Threads, again.Memory = stopped.Dir, 1, plenty
			list, err := Measure(t.Context(), again, ms)
			check(t, err)
			if got := fmt.Sprintf("%+v", *list); got != want {
				t.Errorf("%s, %d %%: other numbers:\n%s\n%s", c.name, part, want, got)
			}
		}
	}
}

// cancelledAt returns a context that ends when a measurement has reached a point.
func cancelledAt(t *testing.T, o *Options, at int64, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	o.Progress = func(done, _ int64) {
		if done >= at {
			cancel(cause)
		}
	}
	return ctx
}
