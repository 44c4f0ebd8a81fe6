package stage_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// lines says when a file of the cache has so many.
func lines(n int, pattern ...string) func(time.Time) bool {
	return func(time.Time) bool {
		names, _ := filepath.Glob(filepath.Join(pattern...))
		if len(names) == 0 {
			return false
		}
		b, _ := os.ReadFile(names[0])
		return bytes.Count(b, []byte("\n")) >= n
	}
}

// A run that is killed while it gathers text, measures or chooses codes gives the same bytes when it is run again.
func TestKilledCalibration(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	const sections = "calibrate: {tokens: 512, window: 64, probe: 128}\n" +
		"quantize: {method: [awq, rtn, {distill: {steps: 4, tokens: 256}}], budget: {bpw: 4.5}}\n" + unverified
	w := newWork(t, tiny, sections)
	w.must(t)
	want := listing(t, w.out())
	for _, c := range []struct {
		name  string
		begin []string // entries of the cache that are removed before
		when  func(time.Time) bool
	}{
		{"text begun", []string{"*-*"}, exists(w.cache(), "calibration-*.partial")},
		{"9 tokens drawn", []string{"*-*"}, lines(9, w.cache(), "calibration-*.partial", "samples.jsonl")},
		{"60 tokens drawn", []string{"*-*"}, lines(60, w.cache(), "calibration-*.partial", "samples.jsonl")},
		{"measuring begun", []string{"sensitivities-*", "allocation-*", "codes-*", "weights-*", "package-*"}, exists(w.cache(), "sensitivities-*.partial", "*")},
		{"12 steps", []string{"sensitivities-*", "allocation-*", "codes-*", "weights-*", "package-*"},
			lines(12, w.cache(), "sensitivities-*.partial", "measured.jsonl")},
		{"9 matrices of a trial", []string{"allocation-*", "codes-*", "weights-*", "package-*"},
			lines(9, w.cache(), "allocation-*.partial", "trial", "ops.jsonl")},
		{"allocated", []string{"allocation-*", "codes-*", "weights-*", "package-*"}, exists(w.cache(), "allocation-*", "done.json")},
		{"9 matrices", []string{"codes-*", "weights-*", "package-*"}, lines(9, w.cache(), "codes-*.partial", "ops.jsonl")},
		{"5 tuned matrices", []string{"codes-*", "weights-*", "package-*"}, lines(5, w.cache(), "codes-*.partial", "tuned-ops.jsonl")},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pattern := range append(c.begin, filepath.Join("..", "dist")) {
				names, err := filepath.Glob(filepath.Join(w.cache(), pattern))
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range names {
					if err := os.RemoveAll(n); err != nil {
						t.Fatal(err)
					}
				}
			}
			alive := killed(t, w, "1", c.when)
			left, _ := filepath.Glob(filepath.Join(w.cache(), "*.partial", "*"))
			t.Logf("killed: %v, %d files of unfinished entries", alive, len(left))
			wholeOrAbsent(t, w.out())
			w.must(t)
			if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
				t.Errorf("package (-want +got):\n%s", diff)
			}
			for _, pattern := range []string{"*.partial", "calibration-*/samples.jsonl"} {
				if left, _ := filepath.Glob(filepath.Join(w.cache(), pattern)); len(left) != 0 {
					t.Errorf("left over: %v", left)
				}
			}
		})
	}
}
