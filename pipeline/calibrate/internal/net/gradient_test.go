package net

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// gradientBound is what a derivative along a direction may differ by from a quotient of differences, relative to the
// lengths of gradient and direction: the loss is rounded to float32 on its way. Observed is a fifth of it.
const gradientBound = 4e-4

// parameter is something that a loss depends on; changed is called after a change, and gradient is filled by the test.
type parameter struct {
	name     string
	x        []float32
	changed  func()
	gradient []float64
}

// checkGradients compares gradients with five-point differences along random directions.
func checkGradients(t *testing.T, loss func() float64, list []*parameter) {
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
			direction[i] = r.NormFloat64()/math.Sqrt(float64(len(direction))) + p.gradient[i]/norm
			length += direction[i] * direction[i]
		}
		length = math.Sqrt(length)
		const step = 0.02
		at := func(f float64) float64 {
			for i := range p.x {
				p.x[i] = float32(float64(saved[i]) + f*step*direction[i]/length)
			}
			p.changed()
			return loss()
		}
		got := 0.0
		want := (8*(at(1)-at(-1)) - (at(2) - at(-2))) / (12 * step)
		for i, g := range p.gradient {
			got += g * direction[i] / length
		}
		copy(p.x, saved)
		p.changed()
		e := math.Abs(got-want) / norm
		if !(e <= gradientBound) {
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
			p := load(t, newModel(t, d, src, 2))
			const windows, length = 2, 70 // more than a block of queries
			tokens := randomTokens(d.Vocab, windows, length)
			h := p.embed(t, tokens)
			labels := make([]int32, windows*length)
			for i := range labels {
				labels[i] = int32(i*7%d.Vocab) - 3 // some count nothing
			}
			cross := func(logits []float32, first int) float64 {
				n := len(logits) / d.Vocab
				return p.CrossEntropyGradient(logits, labels[first:first+n])
			}
			loss := func() float64 {
				x := append([]float32{}, h...)
				for _, l := range p.layers {
					l.Forward(x, length)
				}
				logits := make([]float32, windows*length*d.Vocab)
				p.head.Input(x, x)
				p.head.Logits(logits, x)
				return cross(logits, 0)
			}

			names := map[any]string{p.head.Norm: "final norm", p.head.Linear: "head"}
			for i, l := range p.layers {
				for j, n := range []*Norm{l.AttentionNorm, l.MLPNorm, l.QNorm, l.KNorm} {
					if n != nil {
						names[n] = fmt.Sprint(i, " ", []string{"attention norm", "mlp norm", "q norm", "k norm"}[j])
					}
				}
				for j, n := range l.Linears() {
					names[n] = fmt.Sprint(i, " ", []string{"q", "k", "v", "o", "gate", "up", "down"}[j])
				}
			}
			var list []*parameter
			v := Visitor{
				Linear: func(l *Linear, x, dy []float32) {
					dw := make([]float32, len(l.W))
					l.Gradient(dw, x, dy)
					q := &parameter{name: names[l], x: l.W, changed: func() { l.Set(l.W) }}
					for _, g := range dw {
						q.gradient = append(q.gradient, float64(g))
					}
					list = append(list, q)
					if l.Bias == nil {
						return
					}
					b := &parameter{name: names[l] + " bias", x: l.Bias, changed: func() {}, gradient: make([]float64, l.Rows)}
					for i, g := range dy {
						b.gradient[i%l.Rows] += float64(g)
					}
					list = append(list, b)
				},
				Norm: func(n *Norm, dGamma []float64) {
					list = append(list, &parameter{name: names[n], x: n.Gamma, changed: func() {}, gradient: dGamma})
				},
			}
			inputs := [][]float32{append([]float32{}, h...)}
			for _, l := range p.layers {
				x := append([]float32{}, inputs[l.Index]...)
				l.Forward(x, length)
				inputs = append(inputs, x)
			}
			dh := make([]float32, len(h))
			p.head.Backward(dh, inputs[len(p.layers)], func(token int, logits []float32) { cross(logits, token) }, v)
			for i := len(p.layers) - 1; i >= 0; i-- {
				p.layers[i].Backward(dh, inputs[i], length, v)
			}
			in := &parameter{name: "input", x: h, changed: func() {}}
			for _, g := range dh {
				in.gradient = append(in.gradient, float64(g))
			}
			list = append(list, in)
			want := 2 + 2*(2+7)
			if f.norms {
				want += 4
			}
			if f.biases {
				want += 15
			}
			if len(list) != want+1 {
				t.Errorf("%d gradients, want %d", len(list), want+1)
			}
			checkGradients(t, loss, list)
		})
	}
}

// A gradient of the divergence is 0 where the distributions agree, and that of cross entropy beside its target.
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
	checkGradients(t, loss, []*parameter{one})
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
	if sum := m.CrossEntropyGradient(x, labels); !(sum > 0) {
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
