package net

import (
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// rotary holds cosine, sine and negative sine of every angle, [positions, dim] each, once for each half of a head.
type rotary struct {
	dim, positions    int
	cos, sin, counter []float32
}

// newRotary takes angles, sines and cosines in float64 and rounds once.
func newRotary(r *arch.Rope, positions int) rotary {
	half := r.Dim / 2
	size := positions * r.Dim
	t := rotary{dim: r.Dim, positions: positions, cos: make([]float32, size), sin: make([]float32, size), counter: make([]float32, size)}
	for pos := range positions {
		at := pos * t.dim
		for j, f := range r.InvFreq {
			s, c := kernel.Sincos(float64(pos) * f)
			for i := at + j; i < at+t.dim; i += half {
				t.cos[i], t.sin[i], t.counter[i] = float32(c), float32(s), float32(-s)
			}
		}
	}
	return t
}

// turn rotates elements j and j+dim/2 of every head by the angle of its position, for rows of heads of size elements.
// Row i has the position first + i%length.
func (m *Model) turn(x []float32, heads, size, first, length int) {
	m.rotate(x, heads, size, first, length, false)
}

// unturn is the inverse of turn, which is also what it does to gradients.
func (m *Model) unturn(x []float32, heads, size, first, length int) {
	m.rotate(x, heads, size, first, length, true)
}

func (m *Model) rotate(x []float32, heads, size, first, length int, back bool) {
	t := m.angles(first + length)
	sin := t.sin
	if back {
		sin = t.counter
	}
	width := heads * size
	kernel.Parallel(m.threads, len(x)/width, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row, at := x[i*width:(i+1)*width], (first+i%length)*t.dim
			kernel.RotateHeads(row, row, t.cos[at:at+t.dim], sin[at:at+t.dim], heads, size)
		}
	})
}

// angles is a table of at least so many positions.
func (m *Model) angles(positions int) *rotary {
	if m.rotary.positions < positions {
		m.rotary = newRotary(m.decoder.Ropes[0], positions)
	}
	return &m.rotary
}
