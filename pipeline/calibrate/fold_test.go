package calibrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// outlying returns a model that computes the same with channels, every 61st of each site, that are times as large.
func outlying(t *testing.T, d *arch.Decoder, src tensor.Source, times float32) *Overlay {
	t.Helper()
	o := NewOverlay(src)
	for _, s := range Sites(d) {
		scale := make([]float32, s.Channels)
		for c := range scale {
			scale[c] = 1
			if c%61 == 3 {
				scale[c] = 1 / times
			}
		}
		check(t, s.Apply(o, scale))
	}
	return o
}

// stored returns the model with the consumers of all sites as they would be stored.
func stored(t *testing.T, d *arch.Decoder, src tensor.Source, q quant.Quantizer, spec func(string) quant.Spec, stats map[string]*quant.Stats) *Overlay {
	t.Helper()
	o := NewOverlay(src)
	for _, s := range Sites(d) {
		for _, w := range s.Consumers {
			sp := spec(w.Tensor)
			if sp.Bits == 16 {
				continue
			}
			l, err := sp.Layout(w.Rows, w.Cols)
			check(t, err)
			b, m := quant.NewBlocks(l, sp), quant.Matrix{Rows: w.Rows, Cols: w.Cols, Data: floats(t, src, w)}
			check(t, quant.Encode(q, b, m, sp, stats[s.Consumers[0].Tensor]))
			for i, c := range b.Codes {
				m.Data[i] = b.Scale[i/l.BlockCols] * float32(int(c)-1<<(sp.Bits-1))
				if b.Zero != nil {
					m.Data[i] += b.Zero[i/l.BlockCols]
				}
			}
			check(t, o.ReplaceValues(w.Tensor, m.Data))
		}
	}
	return o
}

func chainOf(t testing.TB, list ...quant.Method) *quant.Chain {
	t.Helper()
	c, err := quant.NewChain(list)
	check(t, err)
	return c
}

// A trained model in which some channels of every site are thirty times as large, its whole body at 4 bits: the search
// loses the weights that read them among those of their block (KL divergence 2.61), foldings bring them back (0.027). At
// most a twentieth must be left.
func TestFoldingOfOutliers(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	d, tiny := openCheckpoint(t, tinyDir)
	src := outlying(t, d, tiny, 30)
	windows := text(t, d)
	want := logits(t, d, src, windows)
	stats := siteStats(t, d, src, windows)
	q, awq := quant.NewSearch(), quant.NewAWQ()
	q.Candidates, awq.Step = 4, 0.2 // both for speed
	plain := divergence(want, logits(t, d, stored(t, d, src, q, fourBits, nil), windows), d.Vocab)
	o, done, err := Fold(t.Context(), d, src, chainOf(t, awq, q), fourBits, of(stats), 2)
	check(t, err)
	if kl := divergence(want, logits(t, d, o, windows), d.Vocab); !(kl <= exact) {
		t.Errorf("folding alone has KL divergence %g", kl)
	}
	kl := divergence(want, logits(t, d, stored(t, d, o, q, fourBits, nil), windows), d.Vocab)
	t.Logf("KL divergence %.4f, search alone %.4f", kl, plain)
	if !(kl <= plain/20) {
		t.Errorf("KL divergence %g, search alone %g", kl, plain)
	}
	for i, s := range Sites(d) {
		if f := done[i]; f.Site != s.Name || f.Method != "awq" || f.Gain() < 0.5 || f.Least >= 1 || f.Most <= 1 {
			t.Errorf("%s: %+v", s.Name, f)
		}
	}
}

func of(stats map[string]*quant.Stats) func(string) (*quant.Stats, error) {
	return func(tensor string) (*quant.Stats, error) {
		if stats[tensor] == nil {
			return nil, fmt.Errorf("no statistics of %s", tensor)
		}
		return stats[tensor], nil
	}
}

// Two foldings at the sites of one layer: the second sees what the first one left, tensors without codes are let be, and
// the number of threads is not seen.
func TestFoldInOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	d, tiny := openCheckpoint(t, tinyDir)
	src := outlying(t, d, tiny, 30)
	windows := [][]int32{text(t, d)[0]}
	one := *d
	one.Layers = d.Layers[:1]
	stats := siteStats(t, &one, src, windows)
	spec := func(tensor string) quant.Spec {
		if !strings.HasPrefix(tensor, "model.layers.0.") {
			return quant.Half
		}
		return fourBits(tensor)
	}
	omni := quant.NewOmniQuant()
	omni.Steps = 5
	chain := chainOf(t, quant.NewAWQ(), omni)
	chain.Quantizer = quant.RTN{}
	var want []byte
	for _, threads := range []int{1, 2, 7} {
		o, done, err := Fold(t.Context(), d, src, chain, spec, of(stats), threads)
		check(t, err)
		if len(done) != 8 {
			t.Fatalf("%d reports", len(done))
		}
		for i := 0; i < len(done); i += 2 {
			if a, b := done[i], done[i+1]; a.Method != "awq" || b.Method != "omniquant" || a.Site != b.Site || math.Abs(b.Before/a.After-1) > 1e-4 {
				t.Errorf("%+v, then %+v", a, b)
			}
		}
		b, err := o.Marshal()
		check(t, err)
		if want == nil {
			want = b
		}
		if !bytes.Equal(b, want) {
			t.Errorf("%d threads: other scales", threads)
		}
	}
}

func TestFoldRefuses(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	lost := errors.New("lost")
	none := func(string) (*quant.Stats, error) { return nil, lost }
	chain := chainOf(t, quant.NewAWQ(), quant.RTN{})
	if _, _, err := Fold(t.Context(), d, src, chain, fourBits, none, 1); !errors.Is(err, lost) {
		t.Errorf("statistics: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Fold(ctx, d, src, chain, fourBits, none, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if o, done, err := Fold(t.Context(), d, src, chainOf(t, quant.RTN{}), fourBits, none, 1); err != nil || done != nil || o == nil {
		t.Errorf("no folders: %v, %v", done, err)
	}
	if _, _, err := Fold(t.Context(), d, src, &quant.Chain{Rotator: quant.NewRotation()}, fourBits, none, 1); err == nil {
		t.Error("a rotation folds")
	}
}
