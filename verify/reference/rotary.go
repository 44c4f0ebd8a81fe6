package reference

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// rotary holds the angles of one description.
type rotary struct {
	of *arch.Rope
	// long is that of the long factors, for windows of more tokens than of.Original; empty without them.
	short, long angles
}

// angles holds cosine and sine, [positions, dim] each, once for each half of a head.
type angles struct {
	dim, positions int
	cos, sin       []float32
}

// newAngles takes angles, sines and cosines in float64 and rounds once. kernel.Sincos gives the same bits on every
// architecture, so that measured numbers, which reach manifests, do too.
func newAngles(frequencies []float64, scale float64, positions int) angles {
	half := len(frequencies)
	t := angles{dim: 2 * half, positions: positions, cos: make([]float32, positions*2*half), sin: make([]float32, positions*2*half)}
	for pos := range positions {
		cos, sin := t.at(pos)
		for j, f := range frequencies {
			s, c := kernel.Sincos(float64(pos) * f)
			cos[j], sin[j] = float32(scale*c), float32(scale*s)
		}
		copy(cos[half:], cos[:half])
		copy(sin[half:], sin[:half])
	}
	return t
}

func (t *angles) at(pos int) (cos, sin []float32) {
	return t.cos[pos*t.dim : (pos+1)*t.dim], t.sin[pos*t.dim : (pos+1)*t.dim]
}

// grow makes the tables reach as many positions.
func (r *rotary) grow(positions int) {
	if r.short.positions < positions {
		r.short = newAngles(r.of.InvFreq, r.of.Scale, positions)
	}
	if r.of.Long != nil && positions > r.of.Original && r.long.positions < positions {
		r.long = newAngles(r.of.Long, r.of.Scale, positions)
	}
}

// rotate turns elements j and j+Dim/2 of every head of x by the angle of its token's position.
func (s *space) rotate(threads int, x []float32, of *arch.Rope, heads, dim int) {
	if of == nil {
		return
	}
	width := heads * dim
	r := s.rotaries[of]
	kernel.Parallel(threads, s.tokens(), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			t := &r.short
			if of.Long != nil && s.totals[i] > of.Original {
				t = &r.long
			}
			cos, sin := t.at(s.positions[i])
			kernel.RotateHeads(x[i*width:(i+1)*width], x[i*width:(i+1)*width], cos, sin, heads, dim)
		}
	})
}

// addRope notes a table that a block uses for heads of dim elements.
func (m *Model) addRope(r *arch.Rope, dim int) error {
	if r == nil {
		return nil
	}
	if r.Dim > dim {
		return fmt.Errorf("rotation of %d elements of a head of %d: %w", r.Dim, dim, tensor.ErrCorrupt)
	}
	for _, have := range m.ropes {
		if have == r {
			return nil
		}
	}
	if r.Dim < 0 || r.Dim%2 != 0 || !finite(r.Scale, math.SmallestNonzeroFloat32) || r.Original < 0 {
		return fmt.Errorf("a rotary table of %d elements with factor %v: %w", r.Dim, r.Scale, tensor.ErrCorrupt)
	}
	for _, f := range [][]float64{r.InvFreq, r.Long} {
		if len(f) != r.Dim/2 && f != nil || r.Dim > 0 && r.InvFreq == nil {
			return fmt.Errorf("%d rotary frequencies for %d elements: %w", len(f), r.Dim, tensor.ErrCorrupt)
		}
		for j, f := range f {
			if math.IsNaN(f) || math.IsInf(f, 0) {
				return fmt.Errorf("rotary frequency %d is %v: %w", j, f, tensor.ErrCorrupt)
			}
			m.fastest = max(m.fastest, math.Abs(f))
		}
	}
	m.ropes = append(m.ropes, r)
	m.ropeFloats += 2 * int64(r.Dim)
	if r.Long != nil {
		m.ropeFloats += 2 * int64(r.Dim)
	}
	return nil
}
