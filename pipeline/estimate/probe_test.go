package estimate

import (
	"math"
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

// One thread waits for nobody, and narrow models make many threads wait for longer than wide ones.
func TestWaiting(t *testing.T) {
	for _, c := range []struct {
		threads, width int
		want           float64
	}{{1, 64, 1}, {16, 512, 1.225}, {16, 768, 1.225}, {16, 256, 1.45}} {
		if got := (&prober{threads: c.threads, width: c.width}).waiting(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%d threads at %d columns: %v, want %v", c.threads, c.width, got, c.want)
		}
	}
}
