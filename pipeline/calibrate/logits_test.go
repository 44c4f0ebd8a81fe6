package calibrate

import (
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// logitDevice is a device for logits, which counts its work, or one that fails meanwhile.
type logitDevice struct {
	fails                       bool
	divergences, labels, tokens int
	versions                    map[uint64]bool // of logits that are compared with
}

func (*logitDevice) Room() int64 { return 0 }

func (d *logitDevice) Compute(w kernel.Work) bool {
	switch w := w.(type) {
	case *kernel.Divergences:
		if d.divergences++; !d.fails {
			w.Do()
		}
		d.versions[w.Want.Version] = true
	case *kernel.Labels:
		if d.labels++; d.fails {
			w.Gradient[0], w.Squares[0] = 7, 7
		} else {
			w.Do()
		}
	case *kernel.Draws:
		if d.tokens++; d.fails {
			w.Tokens[0] = 7
		} else {
			w.Do()
		}
	default:
		return false
	}
	return !d.fails
}

func (*logitDevice) Settle([]float32) error { return nil }

func (*logitDevice) Forget(*kernel.Pasts) {}

// TestLogitsDevice: gradients, divergences and texts do not depend on a device for logits, nor on its failure. Heads with a cap are not its work, nor
// gradients that somebody else takes.
func TestLogitsDevice(t *testing.T) {
	defer kernel.SetDevice(nil)
	type results struct {
		g    *gradients
		kl   []float64
		text [][]int32
	}
	for _, c := range []struct {
		dir   string
		given bool // to the device
	}{{tinyDir, true}, {familyDir("llama"), true}, {familyDir("gemma2"), false}} {
		d, src := openCheckpoint(t, c.dir)
		j := newJob(t, d, src, randomText(d, 3, 24), quant.NewGPTQ())
		run := func(device kernel.Device, v forward.Visitor) (r results) {
			kernel.SetDevice(device)
			m, err := forward.New(d, src, 2)
			check(t, err)
			head, err := m.LoadHead()
			check(t, err)
			r.g, err = j.gradient(t.Context(), m, head, j.Windows, 0, lookupLevel, v, func(int) {})
			check(t, err)
			p, err := newProbe(t.Context(), &j.Options, m, j.Windows, plenty)
			check(t, err)
			p.logits.version = kernel.NewVersion()
			y := slices.Clone(p.final)
			kernel.Scale(y, y, 1.1)
			for range 2 {
				r.kl, err = p.logits.divergences(t.Context(), p.head, head, p.final, y, 2)
				check(t, err)
			}
			r.text, err = Sample(t.Context(), d, src, Sampling{Windows: 3, Length: 5, First: []int32{1}, Seed: 2, Threads: 2})
			check(t, err)
			return r
		}
		want := run(nil, forward.Visitor{})
		for _, fails := range []bool{false, true} {
			x := &logitDevice{fails: fails, versions: map[uint64]bool{}}
			got := run(x, forward.Visitor{})
			if !slices.Equal(got.g.embedding, want.g.embedding) || !slices.Equal(got.g.spread, want.g.spread) || !slices.Equal(got.kl, want.kl) ||
				!slices.EqualFunc(got.text, want.text, slices.Equal) {
				t.Errorf("%s: other results with a device that fails %v", c.dir, fails)
			}
			if given := x.divergences == 2 && x.labels == 1 && x.tokens == 4 && len(x.versions) == 1 && !x.versions[0]; given != c.given {
				t.Errorf("%s, fails %v: %+v", c.dir, fails, x)
			}
		}
		x := &logitDevice{versions: map[uint64]bool{}}
		run(x, forward.Visitor{Linear: func(*forward.Linear, []float32, []float32) {}})
		if x.labels != 0 {
			t.Errorf("%s: gradients that a visitor takes stayed on the device", c.dir)
		}
	}
}
