package calibrate

import (
	"errors"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// siteStats measures the inputs of all sites of a decoder without a head of its own, by site, with nothing but the
// residual stream behind each layer: a layer whose o and down are zero, or pick some of their inputs, adds those to it.
func siteStats(t *testing.T, d *arch.Decoder, src tensor.Source, windows [][]int32) map[string]*quant.Stats {
	t.Helper()
	tokens := 0
	for _, w := range windows {
		tokens += len(w)
	}
	// residual is the stream behind layer i, with picks from column lo on of o and down, or zeros for -1 (o stays as it is
	// for -2).
	residual := func(i, o, down int) []float32 {
		over := NewOverlay(src)
		pick := func(w arch.Weight, lo int) {
			m := make([]float32, w.Rows*w.Cols)
			for r := 0; lo >= 0 && r < w.Rows && lo+r < w.Cols; r++ {
				m[r*w.Cols+lo+r] = 1
			}
			check(t, over.ReplaceValues(w.Tensor, m))
		}
		if o != -2 {
			pick(pairOf(d, i).Attention.O.Weight, o)
		}
		pick(pairOf(d, i).MLP.Down.Weight, down)
		m, err := reference.New(d, over, reference.Options{Threads: 2})
		check(t, err)
		var h []float32
		enough := errors.New("enough")
		err = m.Layers(t.Context(), windows, func(layer int, hidden []float32) error {
			if layer < i {
				return nil
			}
			h = append(h, hidden...)
			return enough
		})
		if err != enough {
			t.Fatal(err)
		}
		return h
	}
	all := map[string]*quant.Stats{}
	for i := range d.Layers {
		l := pairOf(d, i)
		sites := Sites(&arch.Decoder{Hidden: d.Hidden, Layers: d.Layers[i : i+1], Tied: true})
		before, between := residual(i, -1, -1), residual(i, -2, -1)
		normed := func(h []float32, n arch.Norm) []float32 {
			x := make([]float32, len(h))
			kernel.RMSNormRows(x, h, floats(t, src, n.Gamma), tokens, float32(n.Eps))
			return x
		}
		picked := func(cols int, at func(lo int) []float32, base []float32) []float32 {
			x := make([]float32, tokens*cols)
			for lo := 0; lo < cols; lo += d.Hidden {
				h := at(lo)
				for k := range tokens {
					for c := range min(d.Hidden, cols-lo) {
						x[k*cols+lo+c] = h[k*d.Hidden+c] - base[k*d.Hidden+c]
					}
				}
			}
			return x
		}
		for k, x := range [][]float32{
			normed(before, *l.AttentionNorm),
			picked(l.Attention.O.Weight.Cols, func(lo int) []float32 { return residual(i, lo, -1) }, before),
			normed(between, *l.MLPNorm),
			picked(l.MLP.Intermediate, func(lo int) []float32 { return residual(i, -2, lo) }, between),
		} {
			n := len(x) / tokens
			m := newMoments(n, false)
			m.add(x, nil, tokens, 0, 2)
			s, err := m.stats(2)
			check(t, err)
			all[sites[k].Consumers[0].Tensor] = s
		}
	}
	return all
}
