package estimate

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/llmexport/llmexport/pipeline/effort"
)

// Every rate is measured, and a directory that does not exist is no obstacle.
func TestProbe(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, c := range []struct {
		dir   string
		width int
	}{{t.TempDir(), 1}, {t.TempDir(), 300}, {filepath.Join(t.TempDir(), "none"), 5120}} {
		start := time.Now()
		r := Probe(c.dir, 2, c.width)
		t.Logf("%v for", time.Since(start))
		for k, v := range r {
			t.Logf("%v: %.3g", effort.Kind(k), v)
			if !(v > 0) && effort.Kind(k) != effort.Network {
				t.Errorf("%v has the rate %v", effort.Kind(k), v)
			}
		}
	}
}

// A measurement repeats the work until its time is over, and divides by the time that passed.
func TestRate(t *testing.T) {
	now := time.Unix(0, 0)
	p := prober{now: func() time.Time { return now }}
	calls := 0
	got := p.rate(100, func() { calls++; now = now.Add(probeTime / 4) })
	if want := 100 / (probeTime / 4).Seconds(); got != want || calls != 5 {
		t.Errorf("%v units a second after %d calls", got, calls)
	}
}
