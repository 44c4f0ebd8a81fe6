package quant

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Search looks for the scale and zero term of every block that leave the least weighted squared error.
type Search struct {
	// Candidates is the number of scales tried for every block.
	Candidates int `json:"candidates" jsonschema_description:"Scales tried for every block."`
	// Diagonal weights errors by the mean square of their input.
	Diagonal bool `json:"diagonal" jsonschema_description:"Weight errors by the mean square of their input, which calibration measures."`
}

// NewSearch returns the defaults.
func NewSearch() *Search { return &Search{Candidates: 40} }

// Name implements Method.
func (*Search) Name() string { return "search" }

// Calibrated implements Method.
func (s *Search) Calibrated() bool { return s.Diagonal }

// Validate implements Method.
func (s *Search) Validate() error {
	if s.Candidates < 1 || s.Candidates > 200 {
		return fmt.Errorf("candidates must be from 1 to 200, not %d", s.Candidates)
	}
	return nil
}

// Prepare implements Quantizer.
func (s *Search) Prepare(spec Spec, cols int, in *Stats, _ int) (Encoder, error) {
	e := &searched{spec: spec, candidates: s.Candidates}
	if s.Diagonal {
		e.diagonal = in.Diagonal()
	}
	return e, nil
}

type searched struct {
	spec       Spec
	candidates int
	diagonal   []float32
}

// Encode implements Encoder.
func (e *searched) Encode(dst Blocks, w Matrix) error {
	l, err := e.spec.Layout(w.Rows, w.Cols)
	if err != nil {
		return err
	}
	importance := make([]float32, w.Cols)
	var none [1]float32
	for r := range w.Rows {
		row := w.Row(r)
		for b := range l.Blocks {
			part := row[b*l.BlockCols : (b+1)*l.BlockCols]
			if kernel.NonFinite(part) >= 0 {
				return fmt.Errorf("row %d: weight is NaN or infinite: %w", r, tensor.ErrCorrupt)
			}
			imp := importance[:len(part)]
			for i, v := range part {
				imp[i] = float32(v * v)
				if e.diagonal != nil {
					imp[i] = e.diagonal[b*l.BlockCols+i]
				}
			}
			at := r*l.Blocks + b
			zero := none[:]
			if !e.spec.Symmetric {
				zero = dst.Zero[at : at+1]
			}
			searchGrids(dst.Scale[at:at+1], zero, part, imp, e.spec, e.candidates)
			inverse := [1]float32{1 / dst.Scale[at]}
			kernel.GridCodes(dst.Codes[r*w.Cols+b*l.BlockCols:][:len(part)], part, zero, inverse[:], e.spec.Bits)
		}
	}
	return nil
}

// searchGrids chooses scale and zero term, rounded to the spec's type, for the len(scale) blocks of w, which have
// len(w)/len(scale) weights each: those that leave the least sum of importance times squared error. importance [len(w)]
// must not be negative. zero [len(scale)] is 0 for symmetric specs.
func searchGrids(scale, zero, w, importance []float32, s Spec, candidates int) {
	n := len(w) / len(scale)
	for b := range scale {
		scale[b], zero[b] = searchGrid(w[b*n:(b+1)*n], importance[b*n:(b+1)*n], s, candidates)
	}
}

func searchGrid(w, importance []float32, s Spec, candidates int) (scale, zero float32) {
	levels, mid := float64(int(1)<<s.Bits-1), float64(int(1)<<(s.Bits-1))
	lo, hi := float64(w[0]), float64(w[0])
	for _, v := range w {
		lo, hi = min(lo, float64(v)), max(hi, float64(v))
	}
	round := func(v float64) float64 {
		if s.Scale == tensor.F16 {
			return float64(kernel.RoundF16(float32(v)))
		}
		return float64(float32(v))
	}
	if hi == lo && !s.Symmetric {
		return tiny, float32(round(lo))
	}
	if s.Symmetric {
		lo, hi = -max(-lo, hi), max(-lo, hi)
	}
	best := math.Inf(1)
	try := func(sc, z float64) {
		sc, z = round(sc), round(z)
		if sc == 0 {
			return
		}
		var e float64
		for i, v := range w {
			q := min(max(math.RoundToEven((float64(v)-z)/sc), -mid), mid-1)
			d := float64(v) - sc*q - z
			e += float64(importance[i]) * d * d
		}
		if e < best {
			best, scale, zero = e, float32(sc), float32(z)
		}
	}
	for t := range candidates {
		sc := (hi - lo) / (levels - 0.9 + 2*float64(t)/float64(candidates))
		if s.Symmetric {
			try(sc, 0)
			try(-sc, 0)
			continue
		}
		try(sc, lo+sc*mid)
		try(sc, hi-sc*levels+sc*mid)
	}
	if scale == 0 {
		scale = tiny
	}
	return scale, zero
}
