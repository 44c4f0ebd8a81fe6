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
func newRotary(frequencies []float64, scale float64, positions int) *rotary {
	half := len(frequencies)
	dim := 2 * half
	size := positions * dim
	t := &rotary{dim: dim, positions: positions, cos: make([]float32, size), sin: make([]float32, size), counter: make([]float32, size)}
	for pos := range positions {
		at := pos * dim
		for j, f := range frequencies {
			s, c := kernel.Sincos(float64(pos) * f)
			for i := at + j; i < at+dim; i += half {
				t.cos[i], t.sin[i], t.counter[i] = float32(scale*c), float32(scale*s), float32(-scale*s)
			}
		}
	}
	return t
}

// places are the positions of rows within windows of length tokens: row i has the position first + i%rows.
type places struct{ first, rows, length int }

// turn rotates elements j and j+dim/2 of every head by the angle of its position, for rows of heads of size elements. It
// does nothing without a table.
func (m *Model) turn(x []float32, r *arch.Rope, heads, size int, at places) {
	m.rotate(x, r, heads, size, at, false)
}

// unturn takes the gradients of what turn gives back to what it takes.
func (m *Model) unturn(x []float32, r *arch.Rope, heads, size int, at places) {
	m.rotate(x, r, heads, size, at, true)
}

func (m *Model) rotate(x []float32, r *arch.Rope, heads, size int, at places, back bool) {
	if r == nil {
		return
	}
	t := m.angles(r, at.length)
	sin := t.sin
	if back {
		sin = t.counter
	}
	width := heads * size
	kernel.Parallel(m.threads, len(x)/width, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row, at := x[i*width:(i+1)*width], (at.first+i%at.rows)*t.dim
			kernel.RotateHeads(row, row, t.cos[at:at+t.dim], sin[at:at+t.dim], heads, size)
		}
	})
}

// tables are those of a description: long is for windows of more than Original tokens.
type tables struct{ short, long *rotary }

// angles is a table for windows of so many tokens.
func (m *Model) angles(r *arch.Rope, length int) *rotary {
	t := m.rotaries[r]
	if t == nil {
		t = new(tables)
		m.rotaries[r] = t
	}
	to, frequencies := &t.short, r.InvFreq
	if r.Long != nil && length > r.Original {
		to, frequencies = &t.long, r.Long
	}
	if *to == nil || (*to).positions < length {
		*to = newRotary(frequencies, r.Scale, length)
	}
	return *to
}
