package quanttest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// quantizers are the promises of methods that choose codes.
var quantizers = []promise[quant.Quantizer]{
	{"closeness", closeness},
	{"hard rows", hardRows},
	{"zero and constant rows", constantRows},
	{"dead columns", deadColumns},
	{"cuts and threads", cuts},
	{"arguments unchanged", unchanged},
	{"not finite", notFinite},
	{"beyond the type", beyondType},
	{"nonsense", nonsense},
}

func supports(q quant.Quantizer, s quant.Spec) bool {
	_, err := q.Prepare(s, cols, statsFor(q), 1)
	return !errors.Is(err, tensor.ErrUnsupported)
}

// statsFor returns the statistics of the layer for a method that needs them, and nil for others.
func statsFor(q quant.Quantizer) *quant.Stats {
	if q.Needs() < quant.Text {
		return nil
	}
	_, in := layer()
	return in
}

// driftedFor is statsFor of a layer whose inputs are a tenth larger than in the float model.
func driftedFor(q quant.Quantizer) *quant.Stats {
	in := statsFor(q)
	if in != nil {
		in.Cross = slices.Clone(in.Hessian)
		for i := range in.Cross {
			in.Cross[i] *= 0.9
		}
	}
	return in
}

// encode returns the encoded matrix and the weights that it stands for. Codes must fit their bits, scales and zero terms
// their type.
func encode(q quant.Quantizer, w quant.Matrix, s quant.Spec, in *quant.Stats) (quant.Blocks, []float32, error) {
	l, err := s.Layout(w.Rows, w.Cols)
	if err != nil {
		return quant.Blocks{}, nil, err
	}
	b := quant.NewBlocks(l, s)
	if err := quant.Encode(q, b, w, s, in); err != nil {
		return b, nil, fmt.Errorf("%s: %w", s, err)
	}
	for i, c := range b.Codes {
		if int(c) >= 1<<s.Bits {
			return b, nil, fmt.Errorf("%s: code %d of weight %d", s, c, i)
		}
	}
	for i, v := range slices.Concat(b.Scale, b.Zero) {
		if v-v != 0 || s.Scale == tensor.F16 && kernel.RoundF16(v) != v || i < len(b.Scale) && v == 0 {
			return b, nil, fmt.Errorf("%s: scale or zero term %d is %g", s, i, v)
		}
	}
	got := make([]float32, len(w.Data))
	b.Dequantize(got, s)
	return b, got, nil
}

// worthwhile bounds the error of an op's outputs relative to that of rounding to nearest, for a method that watches inputs. One
// that reads the diagonal of the Hessian only may lose .6 % on correlated inputs.
const worthwhile = 1.02

// closeness: weights of an ordinary matrix are as near as the method says.
func closeness(q quant.Quantizer) error {
	w, h := layer()
	return forSpecs(q, func(s quant.Spec) error {
		b, got, err := encode(q, w, s, statsFor(q))
		if err != nil {
			return err
		}
		if q.Closeness().Weights != quant.Fitted {
			return near(q.Closeness(), b, got, w, s)
		}
		_, rounded, err := encode(quant.RTN{}, w, s, nil)
		if err != nil {
			return err
		}
		if e, least := outputError(got, w, h), outputError(rounded, w, h); !(e <= worthwhile*least) {
			return fmt.Errorf("%s: outputs are off by %g, with rounding to nearest by %g", s, e, least)
		}
		return nil
	})
}

// near holds weights to a promise of single weights or blocks.
func near(c quant.Closeness, b quant.Blocks, got []float32, w quant.Matrix, s quant.Spec) error {
	width := len(b.Codes) / len(b.Scale)
	if c.Weights == quant.Rounded {
		for i, v := range w.Data {
			var zero float32
			if !s.Symmetric {
				zero = b.Zero[i/width]
			}
			exact := float64(b.Scale[i/width])*(float64(b.Codes[i])-float64(int(1)<<(s.Bits-1))) + float64(zero)
			if d, most := math.Abs(exact-float64(v)), s.Bound(b.Scale[i/width], zero); !(d <= most) {
				return fmt.Errorf("%s: weight %d is %g, stored as %g: off by %g, bound %g", s, i, v, exact, d, most)
			}
		}
		return nil
	}
	rounding, err := quant.NewRounding(s, w.Cols)
	if err != nil {
		return err
	}
	off := make([]float64, w.Cols/width)
	for r := range w.Rows {
		row := w.Row(r)
		least, err := rounding.Errors(row)
		if err != nil {
			return err
		}
		quant.BlockErrors(off, got[r*w.Cols:(r+1)*w.Cols], row)
		for i, d := range off {
			var largest float64
			for _, v := range row[i*width : (i+1)*width] {
				largest = max(largest, math.Abs(float64(v)))
			}
			ulp := 0x1p-23 * largest // of reading a weight back
			if most := c.Factor*least[i] + ulp*ulp*float64(width); d > most {
				return fmt.Errorf("%s: block %d of row %d is off by %g, rounding to nearest by %g", s, i, r, d, least[i])
			}
		}
	}
	return nil
}

// outputError is tr(dW H dWᵀ) with dW the errors of got.
func outputError(got []float32, w quant.Matrix, in *quant.Stats) (sum float64) {
	d := make([]float64, w.Cols)
	for r := range w.Rows {
		for j := range d {
			d[j] = float64(got[r*w.Cols+j]) - float64(w.Row(r)[j])
		}
		for i, a := range d {
			for j, b := range d {
				sum += a * b * float64(in.Hessian[i*w.Cols+j])
			}
		}
	}
	return sum
}

// hardRows: what can be stored is encoded, and the method's promise holds for it too. A method that watches inputs may miss
// the one grid that fits a row which rounding to nearest happens to hold: it may leave 1.5 times the error, and 2e-6 of the
// row's power.
func hardRows(q quant.Quantizer) error {
	all := hard()
	_, h := layer()
	return forSpecs(q, func(s quant.Spec) error {
		for name, row := range all {
			w := quant.Matrix{Rows: 1, Cols: cols, Data: row}
			b, got, err := encode(q, w, s, statsFor(q))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if q.Closeness().Weights != quant.Fitted {
				if err := near(q.Closeness(), b, got, w, s); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				continue
			}
			_, rounded, err := encode(quant.RTN{}, w, s, nil)
			if err != nil {
				return err
			}
			power := outputError(make([]float32, cols), w, h)
			if e, most := outputError(got, w, h), 1.5*outputError(rounded, w, h)+2e-6*power; !(e <= most) {
				return fmt.Errorf("%s, %s: outputs are off by %g, more than %g", s, name, e, most)
			}
		}
		return nil
	})
}

// constantRows: weights that are all 0 stay 0, and weights that are all alike come back but for the rounding of scale and
// zero term, which 2^-8 covers.
func constantRows(q quant.Quantizer) error {
	return forSpecs(q, func(s quant.Spec) error {
		for _, c := range []float32{0, 0.1, -3, 1000} {
			w := quant.Matrix{Rows: 1, Cols: cols, Data: slices.Repeat([]float32{c}, cols)}
			_, got, err := encode(q, w, s, statsFor(q))
			if err != nil {
				return err
			}
			for i, v := range got {
				if !(math.Abs(float64(v)-float64(c)) <= 0x1p-8*math.Abs(float64(c))) {
					return fmt.Errorf("%s: weight %d of a row of %g is stored as %g", s, i, c, v)
				}
			}
		}
		return nil
	})
}

// deadColumns: inputs that are always 0 do not spoil the others.
func deadColumns(q quant.Quantizer) error {
	if q.Needs() < quant.Text {
		return nil
	}
	n := noise(5)
	w, _ := layer()
	in := stats(n.matrix(tokens, cols), []int{0, 17, 64, 65, cols - 1})
	return forSpecs(q, func(s quant.Spec) error {
		_, got, err := encode(q, w, s, in)
		if err != nil {
			return err
		}
		_, rounded, err := encode(quant.RTN{}, w, s, nil)
		if err != nil {
			return err
		}
		if e, least := outputError(got, w, in), outputError(rounded, w, in); !(e <= worthwhile*least) {
			return fmt.Errorf("%s: outputs are off by %g, with rounding to nearest by %g", s, e, least)
		}
		return nil
	})
}

// cuts: the same rows give the same bits however a matrix is cut, for any number of threads.
func cuts(q quant.Quantizer) error {
	w, _ := layer()
	return forSpecs(q, func(s quant.Spec) error {
		whole, _, err := encode(q, w, s, driftedFor(q))
		if err != nil {
			return err
		}
		l, err := s.Layout(rows, cols)
		if err != nil {
			return err
		}
		for _, c := range []struct{ threads, step int }{{1, 1}, {2, 5}, {7, 2}} {
			e, err := q.Prepare(s, cols, driftedFor(q), c.threads)
			if err != nil {
				return err
			}
			b := quant.NewBlocks(l, s)
			parts := (rows + c.step - 1) / c.step
			errs := make([]error, parts)
			kernel.Parallel(c.threads, parts, func(from, to int) {
				for i := from; i < to; i++ {
					lo, hi := i*c.step, min((i+1)*c.step, rows)
					errs[i] = e.Encode(b.Slice(lo, hi, rows), w.Slice(lo, hi))
				}
			})
			if err := errors.Join(errs...); err != nil {
				return err
			}
			if !reflect.DeepEqual(whole, b) {
				return fmt.Errorf("%s: other bits on %d threads, in steps of %d rows", s, c.threads, c.step)
			}
		}
		return nil
	})
}

// unchanged: weights and statistics are as they were.
func unchanged(q quant.Quantizer) error {
	want, hessian := layer()
	return forSpecs(q, func(s quant.Spec) error {
		w, in := layer()
		if q.Needs() < quant.Text {
			in = nil
		}
		if _, _, err := encode(q, w, s, in); err != nil {
			return err
		}
		if !reflect.DeepEqual(want, w) || in != nil && !reflect.DeepEqual(hessian, in) {
			return fmt.Errorf("%s: weights or statistics were changed", s)
		}
		return nil
	})
}

// notFinite: weights that are NaN or infinite are corrupt, and the row is named.
func notFinite(q quant.Quantizer) error {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	return forSpecs(q, func(s quant.Spec) error {
		for _, set := range []map[int]float32{{40: nan}, {0: nan}, {cols - 1: nan}, {5: inf}, {77: -inf}, {1: inf, 2: -inf}} {
			if err := rejects(q, s, set, tensor.ErrCorrupt); err != nil {
				return err
			}
		}
		return nil
	})
}

// beyondType: scales and zero terms that their type cannot hold are unsupported, and the row is named.
func beyondType(q quant.Quantizer) error {
	for _, c := range []struct {
		s   quant.Spec
		set map[int]float32
	}{
		{quant.Spec{Bits: 2, Block: 32, Symmetric: true, Scale: tensor.F16}, map[int]float32{9: 2e5}},
		{quant.Spec{Bits: 8, Block: 32, Scale: tensor.F16}, map[int]float32{9: 2e5}},
		{quant.Spec{Bits: 8, Block: 32, Scale: tensor.F32}, map[int]float32{9: 3e38, 10: -3e38}},
	} {
		if !supports(q, c.s) {
			continue
		}
		if err := rejects(q, c.s, c.set, tensor.ErrUnsupported); err != nil {
			return err
		}
	}
	return nil
}

// rejects demands an error for a matrix whose second row has weights that set gives.
func rejects(q quant.Quantizer, s quant.Spec, set map[int]float32, want error) error {
	n := noise(7)
	w := n.matrix(2, cols)
	for i, v := range set {
		w.Row(1)[i] = v
	}
	if _, _, err := encode(q, w, s, statsFor(q)); !errors.Is(err, want) || !strings.Contains(err.Error(), "row 1: ") {
		return fmt.Errorf("%s, weights %v: error %v, want one that names row 1 and is %v", s, set, err, want)
	}
	return nil
}

// nonsense: 16 bits, specs that make no sense and statistics that do not fit are errors.
func nonsense(q quant.Quantizer) error {
	good := quant.Spec{Bits: 4, Block: 32, Scale: tensor.F16}
	if _, err := q.Prepare(quant.Half, cols, statsFor(q), 1); err == nil {
		return fmt.Errorf("16 bits have no codes, but the method prepares for them")
	}
	b := quant.Blocks{Codes: make([]uint8, cols), Scale: make([]float32, 4), Zero: make([]float32, 4)}
	w := quant.Matrix{Rows: 1, Cols: cols, Data: make([]float32, cols)}
	if err := quant.Encode(q, b, w, quant.Spec{Bits: 4, Block: 32}, statsFor(q)); !errors.Is(err, tensor.ErrUnsupported) {
		return fmt.Errorf("scales without a type: %v", err)
	}
	if q.Needs() < quant.Text {
		return nil
	}
	for name, in := range map[string]*quant.Stats{"no": nil, "other": {Cols: 64, Hessian: make([]float32, 64*64)}} {
		if _, err := q.Prepare(good, cols, in, 1); err == nil {
			return fmt.Errorf("prepared with %s statistics", name)
		}
	}
	return nil
}

// forSpecs calls try for all specs of a method and returns its first error.
func forSpecs(q quant.Quantizer, try func(quant.Spec) error) error {
	list := specs(q, testing.Short())
	if len(list) == 0 {
		return fmt.Errorf("the method supports no storage form")
	}
	for _, s := range list {
		if err := try(s); err != nil {
			return err
		}
	}
	return nil
}
