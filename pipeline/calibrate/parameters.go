package calibrate

import (
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// parameters are numbers that Adam tunes, with the running means of their gradients, and the best values so far.
type parameters struct {
	value, gradient, mean, square, best []float32
}

func newParameters(n int) *parameters {
	return &parameters{make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)}
}

// state lists the values that a snapshot stores. Gradients are zero between steps.
func (p *parameters) state() [][]float32 { return [][]float32{p.value, p.mean, p.square, p.best} }

// Adam's constants (arXiv 1412.6980).
const (
	adamMean, adamSquare = 0.9, 0.999
	adamFloor            = 1e-12
)

// move takes one step along the gradient and clears it. step counts from 1.
func (p *parameters) move(rate float64, step, threads int) {
	m0, v0 := 1-power(adamMean, step), 1-power(adamSquare, step)
	kernel.Parallel(threads, len(p.value), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			g := float64(p.gradient[i])
			m := float64(adamMean*float64(p.mean[i])) + float64((1-adamMean)*g)
			v := float64(adamSquare*float64(p.square[i])) + float64((1-adamSquare)*float64(g*g))
			p.mean[i], p.square[i] = float32(m), float32(v)
			p.value[i] -= float32(rate * (m / m0) / (math.Sqrt(v/v0) + adamFloor))
			p.gradient[i] = 0
		}
	})
}

func power(x float64, n int) float64 {
	y := 1.0
	for range n {
		y = float64(y * x)
	}
	return y
}
