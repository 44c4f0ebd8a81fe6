package forward

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// rotation returns cosine and sine of the rotation angles for the heads of a token of the group, each repeated for the two
// halves of the rotated elements. nil rotates nothing.
type rotation func(token int) (cos, sin []float32)

// back is the opposite rotation.
func (r rotation) back() rotation {
	if r == nil {
		return nil
	}
	return func(token int) (cos, sin []float32) {
		cos, forth := r(token)
		sin = make([]float32, len(forth))
		for j, v := range forth {
			sin[j] = -v
		}
		return cos, sin
	}
}

// rotate turns elements j and j+dim/2 of every head of x; dim is the number of elements that the rotation covers.
func (s *space) rotate(x []float32, by rotation, heads, dim int) {
	if by == nil {
		return
	}
	width := heads * dim
	kernel.Parallel(s.threads, s.tokens(), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			cos, sin := by(i)
			kernel.RotateHeads(x[i*width:(i+1)*width], x[i*width:(i+1)*width], cos, sin, heads, dim)
		}
	})
}

// rotation returns the rotation of every token by its position.
func (s *space) rotation(of *arch.Rope) rotation {
	if of == nil {
		return nil
	}
	s.lock.Lock()
	r := *s.ropes[of]
	s.lock.Unlock()
	if of.Axes != nil && s.places != nil {
		return s.turning(of, &r.short)
	}
	return func(token int) (cos, sin []float32) {
		t := &r.short
		if of.Long != nil && s.totals[token] > of.Original {
			t = &r.long
		}
		return t.at(s.positions[token])
	}
}

// turning is rotation where each pair turns by one of several positions of a token.
func (s *space) turning(of *arch.Rope, t *angles) rotation {
	half := len(of.Axes)
	all := make([]float32, 2*t.dim*s.tokens())
	for token := range s.tokens() {
		cos, sin := cut(all[2*t.dim*token:2*t.dim*(token+1)], t.dim)
		for j, axis := range of.Axes {
			c, s := t.at(s.places[axis][token])
			cos[j], cos[half+j], sin[j], sin[half+j] = c[j], c[j], s[j], s[j]
		}
	}
	return func(token int) (cos, sin []float32) {
		return cut(all[2*t.dim*token:2*t.dim*(token+1)], t.dim)
	}
}

// rotary holds the angles of one description.
type rotary struct {
	// long holds the angles of the long factors, for windows of more tokens than Original; empty without them.
	short, long angles
}

// angles holds cosine and sine, [positions, dim] each, repeated for the two halves of a head.
type angles struct {
	dim, positions int
	cos, sin       []float32
}

// newAngles computes angles, sines and cosines in float64 and rounds once. kernel.Sincos gives the same bits on every
// architecture, and so do the measured numbers in manifests.
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

// reach extends the tables to the given number of positions. A table in use stays unchanged.
func (m *Model) reach(positions int) error {
	if float64(positions)*m.fastest > kernel.SincosLimit {
		return fmt.Errorf("rotation by %v radians a position over %d tokens: %w", m.fastest, positions, tensor.ErrUnsupported)
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	for of, r := range m.ropes {
		if r.short.positions < positions {
			r.short = newAngles(of.InvFreq, of.Scale, positions)
		}
		if of.Long != nil && positions > of.Original && r.long.positions < positions {
			r.long = newAngles(of.Long, of.Scale, positions)
		}
	}
	return nil
}

// addRope records a table that a block uses for heads of dim elements.
func (m *Model) addRope(r *arch.Rope, dim int) error {
	if r == nil {
		return nil
	}
	if r.Dim > dim {
		return fmt.Errorf("rotation of %d elements of a head of %d: %w", r.Dim, dim, tensor.ErrCorrupt)
	}
	if m.ropes[r] != nil {
		return nil
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
	if r.Axes != nil && len(r.Axes) != r.Dim/2 {
		return fmt.Errorf("%d axes for %d rotary frequencies: %w", len(r.Axes), r.Dim/2, tensor.ErrCorrupt)
	}
	m.ropes[r] = new(rotary)
	return nil
}
