package calibrate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// measuring lists options of the body, by falling divergence behind the first one, and of tables.
func measuring(t *testing.T, probe [][]int32, methods ...quant.Method) Measuring {
	t.Helper()
	return Measuring{
		Chain: chainOf(t, methods...), Scale: tensor.F16, Probe: probe,
		Options: func(w arch.Weight, lookup bool) []quant.Spec {
			if lookup {
				return []quant.Spec{{Bits: 4, Scale: tensor.F16}, {Bits: 8, Scale: tensor.F16}}
			}
			list := []quant.Spec{anchor(tensor.F16, w.Cols)}
			for _, bits := range []int{2, 3, 4, 6} {
				s := quant.Spec{Bits: bits, Block: 32, Scale: tensor.F16}
				if w.Cols%s.Block != 0 {
					s.Block = quant.WholeRow
				}
				list = append(list, s)
			}
			return append(list, quant.Half)
		},
	}
}

func measured(t *testing.T, o Options, ms Measuring) *Measured {
	t.Helper()
	o.Dir = t.TempDir()
	m, err := Measure(t.Context(), o, ms)
	check(t, err)
	noActivations(t, o.Dir)
	return m
}

// itemsOf are the items of an allocation and their weights.
func itemsOf(list []Sensitivity) (items []quant.Item, least, most, weights int64) {
	for _, s := range list {
		it := quant.Item{Members: []string{s.Tensor}}
		for _, o := range s.Options {
			l, err := o.Spec.Layout(s.Rows, s.Cols)
			if err != nil {
				panic(err)
			}
			it.Options = append(it.Options, quant.Option{Spec: o.Spec, Bytes: l.Bytes(), KL: o.KL})
		}
		items = append(items, it)
		bytes := func(a, b quant.Option) int { return cmp.Compare(a.Bytes, b.Bytes) }
		least, most = least+slices.MinFunc(it.Options, bytes).Bytes, most+slices.MaxFunc(it.Options, bytes).Bytes
		weights += int64(s.Rows) * int64(s.Cols)
	}
	return items, least, most, weights
}

// Every matrix once, in order, with numbers that are positive, finite, and fall with every bit; the sum over ops of the
// divergence at 3 bits is that of the model with all of them.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	d, src := openCheckpoint(t, tinyDir)
	text, probe := tinyText(t, d, src)
	d.Layers = d.Layers[:2]
	gptq := quant.NewGPTQ()
	gptq.Candidates, gptq.Sweeps = 4, 1 // for speed
	for _, q := range []quant.Quantizer{quant.RTN{}, gptq} {
		t.Run(q.Name(), func(t *testing.T) {
			j := newJob(t, d, src, text, q)
			j.Sequential, j.Specs = false, specs(t, d, threeBits, quant.Half)
			list := measured(t, j.Options, measuring(t, probe, q)).Sensitivities
			var names []string
			var sum float64
			for _, s := range list {
				names = append(names, s.Tensor)
				if s.Lookup != (s.Tensor == d.Embedding.Tensor) || s.Rows*s.Cols == 0 {
					t.Errorf("%s: %+v", s.Tensor, s)
				}
				bits := s.Options
				if !s.Lookup {
					bits = bits[1:]
					sum += s.Options[0].KL
				}
				for i, opt := range bits {
					exact := opt.Spec.Bits == 16 && opt.KL == 0 // not all weights are, in 16 bits
					if !exact && !(opt.KL > 0 && opt.KL < 10) {
						t.Errorf("%s, %v: %+v", s.Tensor, opt.Spec, opt)
					}
					if i > 0 && !(opt.KL < bits[i-1].KL) {
						t.Errorf("%s: %v adds %g, %v %g", s.Tensor, opt.Spec, opt.KL, bits[i-1].Spec, bits[i-1].KL)
					}
				}
			}
			want := []string{d.Embedding.Tensor}
			d.Linears(func(name string, l *arch.Linear) {
				if name != headInput {
					want = append(want, l.Weight.Tensor)
				}
			})
			if strings.Join(names, " ") != strings.Join(want, " ") {
				t.Errorf("measured %q", names)
			}
			j.Dir = t.TempDir()
			whole := kl(t, j, j.run(t, j.Dir), probe)
			t.Logf("%s: sum of single ops %.4f, all together %.4f", q.Name(), sum, whole)
			if !(sum > 0.75*whole && sum < 1.25*whole) {
				t.Errorf("the divergences of single ops sum up to %.4f, all together have %.4f", sum, whole)
			}
		})
	}
}

// measureDigest holds the bits of TestMeasureDigest.
const measureDigest = "6b09c6e95cfa7348"

// Neither threads nor memory are seen; random models, one of them with a head of its own.
func TestMeasureDigest(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	h := sha256.New()
	for _, name := range []string{"qwen3-untied", "llama-bias", "qwen3_moe"} {
		d, src := openCheckpoint(t, familyDir(name))
		d.Layers = d.Layers[:2]
		windows := randomText(d, 6, 32)
		j := newJob(t, d, src, windows[:4], quant.NewGPTQ())
		var first string
		for _, c := range []struct {
			threads int
			memory  int64
		}{{1, plenty}, {2, 1}, {7, 1 << 20}} {
			o := j.on(c.threads, c.memory).Options
			p := &tally{t: t}
			o.Progress = p.add
			got := fmt.Sprintf("%+v", *measured(t, o, measuring(t, windows[4:], quant.NewGPTQ())))
			p.end()
			if first == "" {
				first = got
				h.Write([]byte(got))
			}
			if got != first {
				t.Errorf("%s: %+v: other numbers", name, c)
			}
		}
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)[:8]); got != measureDigest {
		t.Errorf("digest %q, want %q", got, measureDigest)
	}
}

// A head of its own costs something: it is compared with the float model's, not with itself.
func TestMeasureHead(t *testing.T) {
	t.Parallel()
	d, src := openCheckpoint(t, familyDir("qwen3-untied"))
	d.Layers = d.Layers[:1]
	windows := randomText(d, 3, 16)
	j := newJob(t, d, src, windows[:2], quant.RTN{})
	list := measured(t, j.Options, measuring(t, windows[2:], quant.RTN{})).Sensitivities
	head := list[len(list)-1]
	if head.Tensor != d.Head.Weight.Tensor || len(head.Options) < 2 {
		t.Fatalf("%+v", head)
	}
	for _, o := range head.Options[:len(head.Options)-1] { // the last one is 16 bits
		if !(o.KL > 0) {
			t.Errorf("%v adds %g", o.Spec, o.KL)
		}
	}
}

func TestMeasureFails(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("qwen3-untied"))
	d.Layers = d.Layers[:2]
	windows := randomText(d, 3, 16)
	lost := errors.New("lost")
	up := pairOf(d, 1).MLP.Up.Weight.Tensor
	for _, c := range []struct {
		name string
		edit func(o *Options, ms *Measuring)
		text string
		at   int // matrices measured before it is cancelled, or -1
	}{
		{"no text", func(o *Options, _ *Measuring) { o.Windows = nil }, "no calibration text", -1},
		{"no probe", func(_ *Options, ms *Measuring) { ms.Probe = nil }, "no text to measure", -1},
		{"NaN", func(o *Options, _ *Measuring) { o.Source = &poisoned{src, up, bf16NaN} }, up, -1},
		{"a bad option", func(_ *Options, ms *Measuring) {
			ms.Options = func(w arch.Weight, _ bool) []quant.Spec {
				if w.Tensor == up {
					return []quant.Spec{{Bits: 4, Block: 128, Scale: tensor.F16}}
				}
				return nil
			}
		}, up, -1},
		{"cancelled", func(*Options, *Measuring) {}, "lost", 0},
		{"cancelled later", func(*Options, *Measuring) {}, "lost", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob(t, d, src, windows[:2], quant.RTN{})
			o, ms := j.Options, measuring(t, windows[2:], quant.RTN{})
			o.Dir, o.Memory = t.TempDir(), 1
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.at == 0 {
				cancel(lost)
			}
			n := 0
			o.Progress = func(int64, int64) {
				if n++; n == c.at {
					cancel(lost)
				}
			}
			c.edit(&o, &ms)
			_, err := Measure(ctx, o, ms)
			if err == nil || !strings.Contains(err.Error(), c.text) || c.at >= 0 && !errors.Is(err, lost) {
				t.Errorf("%v", err)
			}
			if c.at >= 0 && n > c.at {
				t.Errorf("%d matrices were measured after the cancellation", n-c.at)
			}
			noActivations(t, o.Dir)
		})
	}
}

// Every expert has divergences, also one that the text does not reach, and all experts of a layer are measured together.
func TestMeasureExperts(t *testing.T) {
	t.Parallel()
	d, src := openCheckpoint(t, familyDir("qwen3_moe"))
	windows := randomText(d, 2, 8) // few tokens for so many experts
	j := newJob(t, d, src, windows[:1], quant.RTN{})
	ms := measuring(t, windows[1:], quant.RTN{})
	ms.Options = func(w arch.Weight, lookup bool) []quant.Spec {
		if strings.Contains(w.Tensor, ".mlp.gate.") {
			return nil // the router
		}
		return []quant.Spec{{Bits: 2, Block: quant.WholeRow, Scale: tensor.F16}, {Bits: 4, Block: quant.WholeRow, Scale: tensor.F16}}
	}
	list := measured(t, j.Options, ms).Sensitivities
	count := map[string]int{}
	for _, s := range list {
		if !(s.Options[0].KL > s.Options[1].KL && s.Options[1].KL > 0) && !s.Lookup {
			t.Errorf("%s: %+v", s.Tensor, s.Options)
		}
		count[s.Tensor]++
	}
	for _, op := range opsOf(d, ms.Options) {
		if want := min(1, len(op.specs)); count[op.tensor] != want {
			t.Errorf("%s: measured %d times, want %d", op.tensor, count[op.tensor], want)
		}
	}
	kinds := map[string]int{}
	for _, g := range groupsOf(opsOf(d, ms.Options), len(d.Layers)) {
		if strings.HasPrefix(g.kind, "experts.") {
			kinds[g.kind]++
		}
	}
	if len(kinds) != 3 {
		t.Errorf("groups of experts: %v", kinds)
	}
}

// Packages at budgets have the divergence that the sensitivities add up to, within a tenth of one factor for all.
func TestMeasurePredicts(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	d, src := openCheckpoint(t, tinyDir)
	text, probe := tinyText(t, d, src)
	gptq := quant.NewGPTQ()
	gptq.Candidates, gptq.Sweeps = 4, 1 // for speed
	j := newJob(t, d, src, text, gptq)
	ms := measuring(t, probe, gptq)
	list := measured(t, j.Options, ms).Sensitivities
	items, least, most, weights := itemsOf(list)
	var factors []float64
	for _, part := range []int64{10, 20, 30} { // percent of the way: 2.6, 3.7 and 5 bits or so
		a, err := quant.Allocate(items, quant.Budget{Bytes: least + (most-least)*part/100})
		check(t, err)
		for i, o := range a.Options {
			j.Specs[items[i].Members[0]] = o.Spec
		}
		j.Dir = t.TempDir()
		got := kl(t, j, j.run(t, j.Dir), probe)
		t.Logf("%.2f bits: %.5f, sum %.5f", 8*float64(a.Bytes)/float64(weights), got, a.KL)
		factors = append(factors, got/a.KL)
	}
	if least, most := slices.Min(factors), slices.Max(factors); !(least > 0.5 && most < 2 && most < 1.2*least) {
		t.Errorf("from %.3f to %.3f times the sums", least, most)
	}
}

// With a device the walk goes on while inputs are visited. No sensitivity shows that.
func TestMeasureBehind(t *testing.T) {
	defer kernel.SetDevice(nil)
	d, src := openCheckpoint(t, familyDir("qwen3_moe"))
	d.Layers = d.Layers[:2]
	o := Options{Decoder: d, Source: src, Windows: randomText(d, 5, 32), Skip: 1, Threads: 2, Memory: plenty}
	ms := measuring(t, randomText(d, 2, 32), quant.NewGPTQ())
	want := measured(t, o, ms)
	none := someProducts(0)
	kernel.SetDevice(&none)
	if got := measured(t, o, ms); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
