package calibrate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// decoded are the weights that a result stands for, with the foldings of its source.
func decoded(t *testing.T, j job, f *Finished, w arch.Weight) []float32 {
	t.Helper()
	s := j.Specs[w.Tensor]
	l, err := s.Layout(w.Rows, w.Cols)
	check(t, err)
	b, err := f.of(w.Tensor, l.Bytes())
	check(t, err)
	x, err := decodeMatrix(b, w.Rows, w.Cols, s)
	check(t, err)
	return x
}

func kl(t *testing.T, j job, f *Finished, text [][]int32) float64 {
	t.Helper()
	v, err := Divergence(t.Context(), j.Options, j.Scheme, f, text)
	check(t, err)
	return v
}

// Channels that a norm switches off are told, and do no harm whatever the chain.
func TestDeadChannels(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	dead := map[int]bool{0: true, 5: true, 31: true, 63: true}
	for _, list := range [][]quant.Method{{quant.NewGPTQ()}, {quant.NewAWQ(), quant.NewGPTQ()}, {quant.NewOmniQuant()}} {
		t.Run(list[0].Name(), func(t *testing.T) {
			if o, ok := list[0].(*quant.OmniQuant); ok {
				o.Steps = 2
			}
			d, src := openCheckpoint(t, familyDir("llama"))
			d.Layers = d.Layers[:2]
			off := edited(t, src, pairOf(d, 1).MLPNorm.Gamma, func(x []float32) {
				for i := range dead {
					x[i] = 0
				}
			})
			j := newJob(t, d, off, randomText(d, 4, 32), list...)
			j.Dir = t.TempDir()
			f := j.run(t, j.Dir)
			for name, op := range ops(f) {
				want := 0
				if m := pairOf(d, 1).MLP; name == m.Gate.Weight.Tensor || name == m.Up.Weight.Tensor {
					want = len(dead)
				}
				if op.Dead != want {
					t.Errorf("%s: %d dead channels, want %d", name, op.Dead, want)
				}
				if !(op.OutputError >= 0 && op.OutputError < 0.1) {
					t.Errorf("%s: output error %g", name, op.OutputError)
				}
			}
			if v := kl(t, j, f, j.Windows); !(v > 0 && v < 0.1) {
				t.Errorf("divergence %g", v)
			}
		})
	}
}

// Rows of one value, blocks and rows of zeros come back as they are, as near as scales of 16 bits allow.
func TestConstantRowsAndZeroBlocks(t *testing.T) {
	gptq := quant.NewGPTQ()
	gptq.Outputs = 0 // else these rows, which have no error, make up for those of others
	for _, list := range [][]quant.Method{{quant.RTN{}}, {quant.NewSearch()}, {quant.NewHQQ()}, {gptq}} {
		for _, symmetric := range []bool{false, true} {
			t.Run(fmt.Sprint(list[0].Name(), symmetric), func(t *testing.T) {
				d, src := openCheckpoint(t, familyDir("qwen2-tied"))
				d.Layers = d.Layers[:1]
				w := pairOf(d, 0).MLP.Up.Weight
				src = edited(t, src, w, func(x []float32) {
					for i := range w.Cols {
						x[i] = 0.03125
						x[w.Cols+i] = 0
					}
					clear(x[2*w.Cols : 2*w.Cols+32])
				})
				j := newJob(t, d, src, randomText(d, 3, 32), list...)
				s := j.Specs[w.Tensor]
				s.Symmetric = symmetric
				j.Specs[w.Tensor], j.Sequential = s, false
				f := j.run(t, t.TempDir())
				x := decoded(t, j, f, w)
				n := 2*w.Cols + 32
				if list[0].Name() == "gptq" {
					n = 2 * w.Cols // the block of zeros makes up for errors of its row
				}
				for i, v := range x[:n] {
					want := float32(0)
					if i < w.Cols {
						want = 0.03125
					}
					if e := v - want; e > 2e-3 || e < -2e-3 {
						t.Fatalf("row %d, column %d: %g instead of %g", i/w.Cols, i%w.Cols, v, want)
					}
				}
				if op := ops(f)[w.Tensor]; !(op.WeightError < 0.05) {
					t.Errorf("%+v", op)
				}
			})
		}
	}
}

// Models of widths that 64 does not divide: blocks of 32 and whole rows, with one matrix in 16 bits and one in 8.
func TestOddWidths(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, c := range []struct {
		hidden, intermediate int
		tied                 bool
	}{{96, 80, false}, {80, 96, true}} {
		t.Run(fmt.Sprint(c.hidden), func(t *testing.T) {
			d, src := madeUp(t, c.hidden, c.intermediate, c.tied)
			most := map[string]float64{}
			for _, list := range [][]quant.Method{{quant.RTN{}}, {quant.NewAWQ(), quant.NewGPTQ()}} {
				j := newJob(t, d, src, randomText(d, 8, 32), list...)
				half, eight := pairOf(d, 0).Attention.V.Weight, pairOf(d, 1).MLP.Down.Weight
				j.Specs[half.Tensor] = quant.Half
				j.Specs[eight.Tensor] = quant.Spec{Bits: 8, Scale: tensor.F16}
				j.Dir = t.TempDir()
				f := j.run(t, j.Dir)
				name := list[len(list)-1].Name()
				most[name] = kl(t, j, f, randomText(d, 12, 32)[8:])
				for tensor, op := range ops(f) {
					limit := 0.05
					switch {
					case op.Spec == "f16":
						limit = 1e-6
					case op.Spec == "w8-brow-asym" && name == "rtn": // gptq moves weights to make up for earlier errors
						limit = 1e-4
					}
					if !(op.WeightError < limit) {
						t.Errorf("%s: %+v", tensor, op)
					}
				}
				if op := ops(f)[half.Tensor]; op.Spec != "f16" {
					t.Errorf("%+v", op)
				}
			}
			t.Logf("divergence %v", most)
			if !(most["gptq"] < most["rtn"]) {
				t.Errorf("divergence of rtn and gptq: %v", most)
			}
		})
	}
}

// A trained model some channels of whose norms are thirty times as large, undone in the matrices behind: a search loses
// their neighbours, foldings bring them back, and error feedback survives.
func TestOutlierChannels(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	d, tiny := openCheckpoint(t, tinyDir)
	text, probe := tinyText(t, d, tiny)
	d.Layers = d.Layers[:2]
	src := NewOverlay(tiny)
	for _, s := range Sites(d) {
		if strings.HasSuffix(s.Name, ".input") {
			scale := make([]float32, s.Channels)
			for c := range scale {
				scale[c] = 1
				if c%61 == 3 {
					scale[c] = 1. / 30
				}
			}
			check(t, s.Apply(src, scale))
		}
	}
	awq, search, gptq := quant.NewAWQ(), quant.NewSearch(), quant.NewGPTQ()
	awq.Step, search.Candidates, gptq.Candidates = 0.25, 8, 8
	got := map[string]float64{}
	for _, list := range [][]quant.Method{{search}, {awq, search}, {gptq}} {
		j := newJob(t, d, src, text, list...)
		j.Specs = specs(t, d, quant.Spec{Bits: 4, Block: 64, Scale: tensor.F16}, quant.Half)
		j.Dir = t.TempDir()
		got[list[0].Name()] = kl(t, j, j.run(t, j.Dir), probe)
	}
	t.Logf("divergence %v", got)
	if !(got["awq"] < got["search"]/5) {
		t.Errorf("foldings leave %.4f of a divergence of %.4f", got["awq"], got["search"])
	}
	if !(got["gptq"] < got["search"]/3) {
		t.Errorf("divergence of gptq is %.4f, of a search %.4f", got["gptq"], got["search"])
	}
}

func TestDivergenceRefuses(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	d.Layers = d.Layers[:1]
	j := newJob(t, d, src, randomText(d, 2, 16), quant.RTN{})
	j.Dir = t.TempDir()
	f := j.run(t, j.Dir)
	if v := kl(t, j, f, j.Windows); !(v > 0 && v < 0.1) {
		t.Errorf("divergence %g", v)
	}
	if _, err := Divergence(t.Context(), j.Options, j.Scheme, f, nil); err == nil || !strings.Contains(err.Error(), "no text") {
		t.Errorf("no text: %v", err)
	}
	missing := newFinished(j.Dir, "", "")
	if _, err := Divergence(t.Context(), j.Options, j.Scheme, missing, j.Windows); err == nil || !strings.Contains(err.Error(), "is not encoded") {
		t.Errorf("a matrix is not encoded: %v", err)
	}
	delete(j.Specs, pairOf(d, 0).Attention.K.Weight.Tensor)
	if _, err := Divergence(t.Context(), j.Options, j.Scheme, f, j.Windows); err == nil || !strings.Contains(err.Error(), "k_proj") {
		t.Errorf("no spec: %v", err)
	}
}
