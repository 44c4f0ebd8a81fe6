package calibrate

import (
	"context"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// ofLayers leaves all of a model but the matrices of some layers as they are.
func (j job) ofLayers(layers ...int) job {
	all := map[string]bool{j.Decoder.Embedding.Tensor: true}
	j.Decoder.Linears(func(_ string, l *arch.Linear) { all[l.Weight.Tensor] = true })
	for _, i := range layers {
		j.Decoder.LayerLinears(i, func(_ string, l *arch.Linear) { delete(all, l.Weight.Tensor) })
	}
	j.Floats = all
	return j
}

// Of a model with layers that stay as they are, the others are encoded, to the same bytes whether the former are in memory or not, and
// after a run that ended in between. Progress counts what is encoded.
func TestQuantizeSomeLayers(t *testing.T) {
	gptq, awq := quant.NewGPTQ(), quant.NewAWQ()
	gptq.Candidates, awq.Step = 3, 0.5
	for _, c := range []struct {
		family  string
		methods []quant.Method
		layers  []int
	}{
		{"llama-bias", []quant.Method{awq, gptq}, []int{0, 2}},
		{"qwen2-untied", []quant.Method{gptq}, []int{1}},
		{"qwen3_moe", []quant.Method{gptq}, []int{0}},
		{"qwen3_5", []quant.Method{gptq}, []int{1}},
	} {
		t.Run(c.family, func(t *testing.T) {
			d, src := openCheckpoint(t, familyDir(c.family))
			windows := randomText(d, 6, 24)
			j := newJob(t, d, src, windows[:4], c.methods...).ofLayers(c.layers...)
			j.GradientWindows = 2
			p, dir := &tally{t: t}, t.TempDir()
			j.Progress = p.add
			f := j.run(t, dir)
			p.end()
			j.Progress = nil
			want, n := content(t, dir), 0
			for _, i := range c.layers {
				d.LayerLinears(i, func(_ string, l *arch.Linear) {
					if n++; !f.Has(l.Weight.Tensor) {
						t.Errorf("%s is not encoded", l.Weight.Tensor)
					}
				})
			}
			if len(f.Ops) != n {
				t.Errorf("%d matrices are encoded, want %d", len(f.Ops), n)
			}
			little := t.TempDir()
			j.on(1, 1).run(t, little)
			same(t, "with little memory", want, content(t, little))
			kl, err := Divergence(t.Context(), j.Options, j.Scheme, f, windows[4:])
			check(t, err)
			if !(kl > 0) {
				t.Errorf("a divergence of %g", kl)
			}

			resumed := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			j.Dir, j.Progress = resumed, func(done, total int64) {
				if 2*done > total {
					cancel()
				}
			}
			if _, err := Quantize(ctx, j.Options, j.Scheme); err == nil {
				t.Fatal("was not cancelled")
			}
			j.Progress = nil
			j.run(t, resumed)
			same(t, "resumed", want, content(t, resumed))
		})
	}
}

// The way back of gradients ends at the lowest layer that needs some, and what it has given until then is the same.
func TestGradientsOfHighLayers(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama-bias"))
	down, low := pairOf(d, 1).MLP.Down.Weight, pairOf(d, 0).MLP.Down.Weight
	gather := func(lowest int) *quant.Stats {
		j := newJob(t, d, src, randomText(d, 3, 24), quant.NewGPTQ())
		o := j.Options
		m, err := forward.New(d, src, 2)
		check(t, err)
		x, err := newOutputMoments(t.Context(), &o, func(tensor string) bool { return tensor == down.Tensor || lowest < 1 && tensor == low.Tensor })
		check(t, err)
		defer x.close()
		if got := x.lowest(d); got != max(lowest, 0) {
			t.Errorf("layer %d is the lowest, want %d", got, lowest)
		}
		st, err := o.tableStats(t.Context(), m, x, lowest)
		check(t, err)
		if (st == nil) != (lowest != lookupLevel) {
			t.Errorf("down to %d there are moments of the table: %v", lowest, st != nil)
		}
		of, err := x.of(down.Tensor, down.Rows, 0)
		check(t, err)
		return of
	}
	want, got := gather(lookupLevel), gather(1)
	for i, v := range want.Hessian {
		if got.Hessian[i] != v {
			t.Fatalf("moment %d is %g, and %g where the way back ends", i, v, got.Hessian[i])
		}
	}
	none, err := newOutputMoments(t.Context(), &Options{Decoder: d, Windows: [][]int32{{1}}}, func(string) bool { return false })
	check(t, err)
	defer none.close()
	if got := none.lowest(d); got != len(d.Layers) {
		t.Errorf("without moments, layer %d is the lowest", got)
	}
}

// What effort predicts for some layers is what is counted.
func TestEffortOfSomeLayers(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for name, open := range map[string]func() (*arch.Decoder, tensor.Source){
		"dense":      func() (*arch.Decoder, tensor.Source) { return madeUp(t, 96, 160, false) },
		"delta nets": func() (*arch.Decoder, tensor.Source) { return openCheckpoint(t, familyDir("qwen3_5")) },
	} {
		d, src := open()
		j := newJob(t, d, src, randomText(d, 8, 64), quant.NewGPTQ()).ofLayers(1)
		j.Dir, j.GradientWindows = t.TempDir(), 3
		e := effortOf(j, nil)
		e.Layers, e.GradientWindows = []int{1}, 3
		predicted(t, name, e.Encoding(d), func(ctx context.Context) error {
			_, err := Quantize(ctx, j.Options, j.Scheme)
			return err
		})
	}
}
