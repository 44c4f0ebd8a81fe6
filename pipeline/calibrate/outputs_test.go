package calibrate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// Moments are E[g gᵀ] of the gradients that the backward pass yields, without the first tokens of every window, and the same
// bits in memory, in a file, and for any number of windows at a time.
func TestOutputMoments(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama-bias"))
	j := newJob(t, d, src, randomText(d, 5, 24), quant.NewGPTQ())
	j.Skip = 3
	m, err := forward.New(d, src, 2)
	check(t, err)
	down, q := pairOf(d, 1).MLP.Down.Weight, pairOf(d, 0).Attention.Q.Weight
	gather := func(memory int64) *outputMoments {
		o := j.Options
		o.Memory, o.Dir = memory, t.TempDir()
		x, err := newOutputMoments(t.Context(), &o, func(tensor string) bool { return tensor != pairOf(d, 0).MLP.Up.Weight.Tensor })
		check(t, err)
		_, err = o.tableStats(t.Context(), m, x, lookupLevel)
		check(t, err)
		return x
	}
	x := gather(plenty)
	defer x.close()

	// The same by plain loops.
	head, err := m.LoadHead()
	check(t, err)
	sums, tokens := map[string][]float64{}, 0
	_, err = j.gradient(t.Context(), m, head, j.Windows, 0, lookupLevel, forward.Visitor{Linear: func(l *forward.Linear, _, dy []float32) {
		name := l.Weight.Tensor
		if sums[name] == nil {
			sums[name] = make([]float64, l.Rows*l.Rows)
		}
		tokens = 0
		for k := range len(dy) / l.Rows {
			if k%24 < j.Skip {
				continue
			}
			tokens++
			g := dy[k*l.Rows : (k+1)*l.Rows]
			for a := range g {
				for b := range g {
					sums[name][a*l.Rows+b] += float64(g[a]) * float64(g[b])
				}
			}
		}
	}}, func(int) {})
	check(t, err)
	for _, w := range []string{down.Tensor, q.Tensor} {
		rows := down.Rows
		if w == q.Tensor {
			rows = q.Rows
		}
		moments, err := x.of(w, rows, 0)
		check(t, err)
		for i, v := range moments.Hessian {
			want := sums[w][i] / float64(tokens)
			if diff, scale := float64(v)-want, sums[w][i/rows*(rows+1)]/float64(tokens); diff > 1e-4*scale || diff < -1e-4*scale {
				t.Fatalf("%s: element %d is %g, want %g", w, i, v, want)
			}
		}
	}
	if x.has(pairOf(d, 0).MLP.Up.Weight.Tensor) || x.has(d.Embedding.Tensor) || !x.has(down.Tensor) {
		t.Error("moments of other matrices than those that are wanted")
	}

	y := gather(0) // one window at a time, in a file
	defer y.close()
	a, err := x.of(down.Tensor, down.Rows, 0)
	check(t, err)
	b, err := y.of(down.Tensor, down.Rows, 0)
	check(t, err)
	if x.store.mem == nil || y.store.file == nil || !slices.Equal(a.Hessian, b.Hessian) {
		t.Error("other moments with little memory")
	}

	for _, left := range []int{0, 1, 3} { // layers of which a device has them
		device := &layersBack{left: left, kept: map[*float32][]float32{}}
		kernel.SetDevice(device)
		z := gather(plenty)
		kernel.SetDevice(nil)
		defer z.close()
		if device.left > 0 || left > 0 && device.moments == 0 || left == 0 && device.products == 0 || len(device.kept) > 0 {
			t.Errorf("a device could add moments of %d more layers, and added %d sums, %d of products; %d are lost", device.left, device.moments, device.products,
				len(device.kept))
		}
		for name, n := range x.tokens {
			if z.tokens[name] != n {
				t.Errorf("%s: %d tokens with a device, %d without", name, z.tokens[name], n)
			}
		}
		for i, v := range x.store.mem {
			if z.store.mem[i] != v {
				t.Fatalf("with a device moment %d is %g, and %g without", i, z.store.mem[i], v)
			}
		}
		if len(z.staying) > 0 {
			t.Error("moments stay on a device")
		}
	}
}

// layersBack is a device that computes gradients of some layers. Of later ones it keeps the sums, to which it adds products.
type layersBack struct {
	left, moments, products int
	kept                    map[*float32][]float32
}

func (*layersBack) Room() int64 { return 0 }

func (d *layersBack) Compute(w kernel.Work) bool {
	if p, ok := w.(*kernel.Product); ok && p.Sum == kernel.AddLower && d.kept[&p.Dst[0]] != nil {
		for _, part := range p.Parts {
			var x kernel.Packed
			x.Resize(p.Rows, part.K)
			x.PackColumns(part.A.Data, 0, p.Rows, part.A.Stride)
			x.Syrk(d.kept[&p.Dst[0]], part.A.Data, 0, p.Rows, 0, p.Rows, p.Rows, part.A.Stride)
		}
		d.products++
		return true
	}
	c, ok := w.(*kernel.Chain)
	if !ok || c.Given == nil {
		return false
	}
	if d.left == 0 {
		for _, x := range c.Moments {
			if d.kept[&x.Dst[0]] == nil {
				d.kept[&x.Dst[0]] = slices.Clone(x.Dst)
			}
		}
		return false
	}
	d.left--
	d.moments += len(c.Moments)
	c.Do()
	return true
}

func (d *layersBack) Settle(dst []float32) error {
	if len(dst) == 0 {
		return nil
	}
	if x := d.kept[&dst[0]]; x != nil {
		copy(dst, x)
		delete(d.kept, &dst[0])
	}
	return nil
}

func (*layersBack) Forget(*kernel.Pasts) {}

func TestRuns(t *testing.T) {
	for rows, want := range map[int]string{1: "[1]", 1024: "[1024]", 1025: "[512 513]", 1536: "[768 768]", 4096: "[1024 1024 1024 1024]"} {
		if got := fmt.Sprint(runs(rows)); got != want {
			t.Errorf("%d rows: %s, want %s", rows, got, want)
		}
	}
}

func TestToExpert(t *testing.T) {
	for name, want := range map[string]bool{
		"layers.0.experts.12.gate": true, "layers.0.experts.shared.up": false, "layers.0.experts.router": false, "layers.3.q": false,
	} {
		if toExpert(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// Coupling changes matrices between table and head, and those alone.
func TestOutputsChange(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama-bias"))
	d.Layers = d.Layers[:1]
	var results []map[string]Op
	for _, outputs := range []float64{0, 1} {
		gptq := quant.NewGPTQ()
		gptq.Outputs, gptq.Candidates = outputs, 4
		j := newJob(t, d, src, randomText(d, 5, 32), gptq)
		results = append(results, ops(j.run(t, t.TempDir())))
	}
	for name, op := range results[0] {
		other := name != d.Embedding.Tensor && name != d.Head.Weight.Tensor
		if changed := results[1][name].SHA256 != op.SHA256; changed != other {
			t.Errorf("%s: changed is %v", name, changed)
		}
	}
}
