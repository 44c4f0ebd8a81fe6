package forward

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// wholes is a device that computes some branches of whole windows.
type wholes struct {
	left, done int
	back       bool // gradients alone
}

func (d *wholes) Compute(w kernel.Work) bool {
	c, ok := w.(*kernel.Chain)
	if !ok || c.Windows == nil || d.left == 0 || d.back && c.Given == nil {
		return false
	}
	d.left--
	d.done++
	c.Do()
	return true
}

func (*wholes) Settle([]float32) error { return nil }
func (*wholes) Forget(*kernel.Pasts)   {}
func (*wholes) Room() int64            { return 0 }

// throughLayers returns the states after every layer, and what the last linear layer of every branch reads.
func throughLayers(t *testing.T, m *Model, windows [][]int32) (all [][]float32) {
	t.Helper()
	e, err := m.Embedding()
	check(t, err)
	h, err := e.States(t.Context(), windows)
	check(t, err)
	w := Equal(len(windows), len(windows[0]))
	for i := range m.decoder.Layers {
		l, err := m.LoadLayer(i)
		check(t, err)
		for _, b := range l.Branches() {
			if b.of.block.last() == nil {
				continue
			}
			in := b.Inputs()
			last := in[len(in)-1][0]
			x := make([]float32, len(h)/m.decoder.Width()*last.Cols)
			check(t, b.Read(t.Context(), x, h, w, last))
			all = append(all, x)
		}
		check(t, l.Forward(t.Context(), h, w))
		all = append(all, slices.Clone(h))
	}
	return all
}

// backThroughLayers returns the gradients of the states before every layer, and what a visitor sees of its layers.
func backThroughLayers(t *testing.T, m *Model, windows [][]int32) (all [][]float32) {
	t.Helper()
	e, err := m.Embedding()
	check(t, err)
	h, err := e.States(t.Context(), windows)
	check(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	dh := make([]float32, len(h))
	for i := range dh {
		dh[i] = r.Float32() - .5
	}
	see := func(wanted bool, x []float32) {
		if wanted {
			all = append(all, slices.Clone(x))
		}
	}
	w := Equal(len(windows), len(windows[0]))
	for i := range m.decoder.Layers {
		l, err := m.LoadLayer(i)
		check(t, err)
		v := Visitor{Wants: func(l *Linear) (x, dy bool) { return l.Rows%4 < 2 && i%2 == 0, i%3 > 0 }}
		v.Linear = func(l *Linear, x, dy []float32) {
			all = append(all, []float32{float32(l.Rows), float32(l.Cols)})
			inputs, gradients := v.Wants(l)
			see(inputs, x)
			see(gradients, dy)
		}
		if i%2 == 1 {
			v.Norm = func(n *Norm, d []float64) {
				for _, g := range append([]float64{float64(len(n.Gamma))}, d...) { // all bits of them
					all = append(all, []float32{float32(g), float32(g - float64(float32(g)))})
				}
			}
		}
		check(t, l.Backward(t.Context(), dh, h, w, v))
		all = append(all, slices.Clone(dh))
		check(t, l.Forward(t.Context(), h, w))
	}
	return all
}

// Branches of whole windows have the same bits on a device, also if it fails after some of them.
func TestWholeWindows(t *testing.T) { testOnDevice(t, false, throughLayers) }

// So have gradients.
func TestBackOnDevice(t *testing.T) { testOnDevice(t, true, backThroughRepeated) }

// backThroughRepeated repeats windows for more than a block of queries, where heads share keys.
func backThroughRepeated(t *testing.T, m *Model, windows [][]int32) [][]float32 {
	t.Helper()
	for i, w := range windows {
		windows[i] = slices.Repeat(w, 2)[:128]
	}
	return backThroughLayers(t, m, windows)
}

// Mixtures whose router and experts read different norms have no family whose experts devices compute.
func TestNormedExpertsBackOnDevice(t *testing.T) {
	d, src := openSource(t, filepath.Join(familiesDir, "qwen3_moe"))
	mixtures := 0
	for i := range d.Layers {
		for _, b := range d.Layers[i] {
			if e, ok := b.Block.(*arch.Experts); ok {
				e.RouterNorm, e.Norm = &arch.Norm{Gamma: d.FinalNorm.Gamma, Eps: 1e-3}, &arch.Norm{Gamma: b.Norm.Gamma, Eps: 1e-2}
				mixtures++
			}
		}
	}
	if n := sameOnDevice(t, "normed", d, src, randomTokens(d.Vocab, 3, 80), true, backThroughRepeated); mixtures == 0 || n < len(d.Layers) {
		t.Errorf("%d mixtures, %d of %d layers on a device", mixtures, n, len(d.Layers))
	}
}

// testOnDevice compares what through returns with a device and without one, for families of which some have to be computed there.
func testOnDevice(t *testing.T, back bool, through func(t *testing.T, m *Model, windows [][]int32) [][]float32) {
	families := 0
	eachFamily(t, func(name string, d *arch.Decoder, src tensor.Source, windows [][]int32) {
		if n := sameOnDevice(t, name, d, src, windows, back, through); n > 0 {
			families++
			if testing.Verbose() {
				t.Logf("%s: %d branches", name, n)
			}
		}
	})
	if families < 4 {
		t.Errorf("%d families on a device", families)
	}
}

// sameOnDevice compares that for a model, and returns what a device does of it that does not fail.
func sameOnDevice(t *testing.T, name string, d *arch.Decoder, src tensor.Source, windows [][]int32, back bool,
	through func(t *testing.T, m *Model, windows [][]int32) [][]float32) (done int) {
	t.Helper()
	defer kernel.SetDevice(nil)
	want := through(t, newModel(t, d, src, 2), slices.Clone(windows))
	for _, left := range []int{0, 3, 1 << 30} {
		device := &wholes{left: left, back: back}
		kernel.SetDevice(device)
		got := through(t, newModel(t, d, src, 2), slices.Clone(windows))
		for j := range want {
			if !slices.Equal(got[j], want[j]) {
				t.Errorf("%s: other values with %d branches on a device, first at %d of %d", name, device.done, j, len(want))
				break
			}
		}
		done = device.done
	}
	return done
}
