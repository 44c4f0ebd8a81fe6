package forward

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// gradientBound is what a derivative along a direction may differ by from a quotient of differences, relative to the
// lengths of gradient and direction: the loss is rounded to float32 on its way.
const gradientBound = 4e-4

// gradientFloor is a length below which gradients count as 0: a bias of all keys changes no softmax.
const gradientFloor = 0.01

// kinkBound is gradientBound where an activation has a kink, which steps go across.
const kinkBound = 1e-2

// routedBound is gradientBound where only small steps serve, whose quotients are rounded: where experts are chosen, larger ones
// change a choice.
const routedBound = 1e-3

// clippedBound is gradientBound for models that clip: quotients are off by what crosses the bound. Without the gradients
// that clipping clears, most would be off by .2 to .9.
const clippedBound = 0.05

// parameter is something that a loss depends on; changed is called after a change, and gradient is filled by the test.
type parameter struct {
	name     string
	x        []float32
	changed  func()
	gradient []float64
}

// checkGradients compares gradients with five-point differences along random directions. The loss is NaN where a step changes
// the choice of experts.
func checkGradients(t *testing.T, loss func() float64, list []*parameter, bound float64) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	for _, p := range list {
		saved, direction := append([]float32{}, p.x...), make([]float64, len(p.x))
		// A direction that has much of the gradient in it, so that the derivative stands out of the noise.
		var norm, length float64
		for _, g := range p.gradient {
			norm += g * g
		}
		norm = math.Sqrt(norm)
		for i := range direction {
			direction[i] = r.NormFloat64()/math.Sqrt(float64(len(direction))) + p.gradient[i]/max(norm, gradientFloor)
			length += direction[i] * direction[i]
		}
		length = math.Sqrt(length)
		got := 0.0
		for i, g := range p.gradient {
			got += g * direction[i] / length
		}
		// Large steps are far from rounding, small ones from curvature.
		var want float64
		e := math.Inf(1)
		for _, step := range []float64{0.02, 0.01, 0.005, 0.0025, 0.001, 0.0004, 0.0002} {
			at := func(f float64) float64 {
				for i := range p.x {
					p.x[i] = float32(float64(saved[i]) + f*step*direction[i]/length)
				}
				p.changed()
				return loss()
			}
			quotient := (8*(at(1)-at(-1)) - (at(2) - at(-2))) / (12 * step)
			if off := math.Abs(got-quotient) / max(norm, gradientFloor); off < e {
				want, e = quotient, off
			}
			if e <= bound {
				break
			}
		}
		copy(p.x, saved)
		p.changed()
		if !(e <= bound) {
			t.Errorf("%s: derivative %v, differences %v, gradient of length %v", p.name, got, want, norm)
		}
		t.Logf("%-16s %.1e", p.name, e)
	}
}

func TestGradients(t *testing.T) {
	for _, f := range []features{
		{heads: 4, kvHeads: 2, norms: true},
		{heads: 3, kvHeads: 3, biases: true, untied: true},
		{heads: 4, kvHeads: 1, norms: true, biases: true, untied: true},
	} {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			d, src := randomModel(f)
			testGradients(t, d, src)
		})
	}
	for i, c := range blocks {
		if testing.Short() && i%4 != 1 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			d, m := makeModel(features{heads: 4, kvHeads: 2})
			c.change(d, m)
			testGradients(t, d, m.src)
		})
	}
	if testing.Short() {
		return
	}
	eachForm(t, testGradients)
}

// Weights whose outputs later layers read next to the stream.
func TestSideGradients(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	d, src := openSource(t, filepath.Join(familiesDir, "gemma4_text-edge"))
	p := load(t, newModel(t, d, src, 2))
	testGradientsOf(t, p, stableTokens(t, p, 2, 20))
}

// Every block and every option of them, layer by layer.
func TestEveryGradient(t *testing.T) {
	for layer := range layersOfEverything {
		d, src := everything()
		d.Layers = d.Layers[layer : layer+1]
		if testing.Short() && layer != latentLayer {
			continue
		}
		t.Run(fmt.Sprint("layer ", layer), func(t *testing.T) { testGradients(t, d, src) })
	}
}

// testGradients checks the gradients of all weights, of the table as it is looked up, and of the states before the first
// layer.
func testGradients(t *testing.T, d *arch.Decoder, src *memory) {
	const windows = 2
	length := 70 // more than a block of queries
	if mixed(d) {
		length = 16
	}
	p := load(t, newModel(t, d, src, 2))
	testGradientsOf(t, p, stableTokens(t, p, windows, length))
}

// given are labels of all rows.
func given(labels []int32) Labels {
	return func(first int, dst []int32, _ []float32, _ []float64) { copy(dst, labels[first:]) }
}

// testGradientsOf is testGradients for some windows.
func testGradientsOf(t *testing.T, p *parts, tokens [][]int32) {
	d, of, count := p.decoder, lengths(tokens), len(slices.Concat(tokens...))
	e, err := p.LoadTable()
	check(t, err)
	table := e.W
	p.embedding.Table = table
	states := make([]float32, count*d.Width()) // to be added
	begin := func() []float32 {
		h := p.embed(t, tokens)
		kernel.Add(h, h, states)
		return h
	}
	labels := make([]int32, count)
	for i := range labels {
		labels[i] = int32(i*7%d.Vocab) - 3 // some count nothing
	}
	cross := func(logits []float32, first int) float64 {
		n := len(logits) / d.Vocab
		return p.CrossEntropyGradient(logits, given(labels[first:first+n]))
	}
	choices := p.choices(t, begin(), of)
	loss := func() float64 {
		x := begin()
		if !slices.Equal(p.choices(t, x, of), choices) {
			return math.NaN()
		}
		logits := make([]float32, count*d.Vocab)
		x = p.head.Input(x, x)
		check(t, p.head.Logits(t.Context(), logits, x))
		return cross(logits, 0)
	}

	var list []*parameter
	v := Visitor{
		Linear: func(l *Linear, x, dy []float32) {
			dw := make([]float32, len(l.W))
			l.Gradient(dw, x, dy)
			list = append(list, &parameter{name: l.Weight.Tensor, x: l.W, changed: func() { l.Set(l.W) }, gradient: doubles(dw)})
			if l.Bias == nil {
				return
			}
			b := &parameter{name: l.Weight.Tensor + " bias", x: l.Bias, changed: func() {}, gradient: make([]float64, l.Rows)}
			for i, g := range dy {
				b.gradient[i%l.Rows] += float64(g)
			}
			list = append(list, b)
		},
		Norm: func(n *Norm, dGamma []float64) {
			if at := slices.IndexFunc(list, func(q *parameter) bool { return &q.x[0] == &n.Gamma[0] }); at >= 0 { // one window after another
				for i, g := range dGamma {
					list[at].gradient[i] += g
				}
				return
			}
			list = append(list, &parameter{name: n.Weight.Tensor, x: n.Gamma, changed: func() {}, gradient: dGamma})
		},
	}
	h := begin()
	var inputs [][]float32
	for _, l := range p.layers {
		inputs = append(inputs, append([]float32{}, h...))
		check(t, l.Forward(t.Context(), h, of))
	}
	stream := p.Stream(h)
	dh := make([]float32, len(stream))
	check(t, p.head.Backward(t.Context(), dh, stream, func(token int, logits []float32) error { cross(logits, token); return nil }, v))
	dh = p.WithSide(dh)
	for i := len(p.layers) - 1; i >= 0; i-- {
		check(t, p.layers[i].Backward(t.Context(), dh, inputs[i], of, v))
	}
	list = append(list, &parameter{name: "states", x: states, changed: func() {}, gradient: doubles(dh)})
	dh, err = p.embedding.Backward(t.Context(), dh, tokens, v)
	check(t, err)
	rows := &parameter{name: "table", x: table, changed: func() {}, gradient: make([]float64, len(table))}
	for i, token := range slices.Concat(tokens...) {
		for j, g := range dh[i*d.Hidden : (i+1)*d.Hidden] {
			rows.gradient[int(token)*d.Hidden+j] += float64(g)
		}
	}
	list = append(list, rows)

	// What is not visited has no gradient: experts without tokens.
	add := func(name string, x []float32, changed func()) {
		if !slices.ContainsFunc(list, func(q *parameter) bool { return &q.x[0] == &x[0] }) {
			list = append(list, &parameter{name: name + " of no token", x: x, changed: changed, gradient: make([]float64, len(x))})
		}
	}
	visited, linears, norms := len(list), []*Linear{p.head.Linear}, []*Norm{p.head.Norm}
	for _, l := range p.layers {
		linears, norms = append(linears, l.Linears()...), append(norms, l.Norms()...)
	}
	if n := p.embedding.Norm; n != nil {
		norms = append(norms, n)
	}
	for _, l := range linears {
		add(l.Weight.Tensor, l.W, func() { l.Set(l.W) })
		if l.Bias != nil {
			add(l.Weight.Tensor+" bias", l.Bias, func() {})
		}
	}
	for _, n := range norms {
		add(n.Weight.Tensor, n.Gamma, func() {})
	}
	if !mixed(d) && len(list) > visited {
		t.Errorf("%d parameters were not visited, such as %s", len(list)-visited, list[visited].name)
	}
	checkGradients(t, loss, list, boundOf(d))
}

// boundOf is the largest bound of the blocks of a decoder.
func boundOf(d *arch.Decoder) float64 {
	bound := gradientBound
	if mixed(d) {
		bound = routedBound
	}
	for _, b := range slices.Concat(d.Layers...) {
		switch x := b.Block.(type) {
		case *arch.MLP:
			if x.Activation == arch.ReLU || x.Activation == arch.ClampedSwiGLU {
				bound = max(bound, kinkBound)
			}
		case *arch.Attention:
			if x.Clip != 0 {
				bound = max(bound, clippedBound)
			}
		case *arch.DeltaNet: // directions of short queries and keys turn fast, and their states amplify roundings
			bound = max(bound, routedBound)
		case *arch.Mamba2:
			if x.TimeMin > 0 || x.TimeMax < math.Inf(1) {
				bound = max(bound, kinkBound)
			}
		}
	}
	return bound
}

func doubles(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// The gradient of the divergence is 0 where the distributions agree, and that of cross entropy is 0 where the label is negative.
func TestLosses(t *testing.T) {
	d, src := randomModel(features{heads: 2, kvHeads: 2})
	m := newModel(t, d, src, 2)
	r := rand.New(rand.NewPCG(5, 6))
	rows := func() []float32 {
		x := make([]float32, 9*d.Vocab)
		for i := range x {
			x[i] = float32(2 * r.NormFloat64())
		}
		return x
	}
	p, q := rows(), rows()
	saved := append([]float32{}, q...)
	loss := func() float64 {
		sum := m.KLGradient(append([]float32{}, q...), p)
		return sum
	}
	gradient := append([]float32{}, q...)
	if sum := m.KLGradient(gradient, p); sum != loss() || !(sum > 0) {
		t.Errorf("divergence %v", sum)
	}
	one := &parameter{name: "logits", x: q, changed: func() {}}
	for _, g := range gradient {
		one.gradient = append(one.gradient, float64(g))
	}
	checkGradients(t, loss, []*parameter{one}, gradientBound)
	copy(q, saved)
	if sum := m.KLGradient(q, saved); sum != 0 {
		t.Errorf("divergence from itself %v", sum)
	}
	for i, g := range q {
		if g != 0 {
			t.Fatalf("gradient %d is %v", i, g)
		}
	}
	labels := []int32{3, -1, 0, 49, 7, -5, 1, 2, 3}
	x := append([]float32{}, saved...)
	if sum := m.CrossEntropyGradient(x, given(labels)); !(sum > 0) {
		t.Errorf("cross entropy %v", sum)
	}
	for i, label := range labels {
		var sum, size float64
		for _, g := range x[i*d.Vocab : (i+1)*d.Vocab] {
			sum += float64(g)
			size += math.Abs(float64(g))
		}
		if math.Abs(sum) > 1e-6 || (size == 0) != (label < 0) {
			t.Errorf("row %d: gradients sum up to %v, magnitudes to %v", i, sum, size)
		}
	}
}
