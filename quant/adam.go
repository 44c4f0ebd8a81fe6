package quant

import "math"

// adam is the state of gradient descent by "Adam: A Method for Stochastic Optimization" (ICLR 2015), with decays 0.9
// and 0.999. Parameters are independent of each other.
type adam struct {
	mean, square []float64
	// decayed are 0.9 and 0.999 to the power of the step.
	decayed [2]float64
}

func newAdam(n int) *adam {
	return &adam{make([]float64, n), make([]float64, n), [2]float64{1, 1}}
}

// begin starts a step.
func (a *adam) begin() {
	a.decayed[0] *= 0.9
	a.decayed[1] *= 0.999
}

// step returns the amount by which parameter i has to fall. A parameter whose gradient has always been 0
// stays.
func (a *adam) step(i int, gradient, rate float64) float64 {
	a.mean[i] = float64(0.9*a.mean[i]) + float64(0.1*gradient)
	a.square[i] = float64(0.999*a.square[i]) + float64(0.001*float64(gradient*gradient))
	if a.square[i] == 0 {
		return 0
	}
	m, v := a.mean[i]/(1-a.decayed[0]), a.square[i]/(1-a.decayed[1])
	return rate * m / math.Sqrt(v)
}
