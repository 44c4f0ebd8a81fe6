package verify

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Weights checks that every stored weight, read back as the engine reads it, is as close to the source's as the methods that
// the package was made with promise, and equal to it where codes were copied; that no number is NaN or infinite; and that no
// row is all zero unless the source's is. Max bounds the relative squared error of an op's outputs that a method may report.
type Weights struct{ Limit }

// outputErrors bounds the error that a calibrated method may report for a matrix, by bits: the squared error of the op's
// outputs over their squares, on the calibration text. The weights of another op would give errors of 1 to 2; the methods'
// errors are up to .005 at 8 bits, .08 at 4 and .3 at 3 on the model with outliers of the tests, and less on others.
var outputErrors = map[int]float64{2: 0.9, 3: 0.7, 4: 0.3, 5: 0.15, 6: 0.1, 8: 0.05, 16: 0.05}

// strange is the squared error over the squared weights beyond which a matrix is a different one.
const strange = 0.9

// Fits holds the records of calibrated methods about the matrices that they encoded.
type Fits struct {
	// Floats has the tensors that were encoded, after foldings and rotations; nil where only the checkpoint is available.
	Floats tensor.Source
	// Reported are the methods' own errors, by tensor.
	Reported map[string]Fit
}

// Fit is the report of a method about a matrix: squared errors of the weights over their squares, and of the op's
// outputs.
type Fit struct {
	Spec             string
	Weights, Outputs float64
}

func (*Weights) String() string { return "weights" }

// Hint implements Check.
func (*Weights) Hint(map[string]float64) string {
	return "to lower errors that a method reports, use more bits, smaller blocks or another quantize.method; " +
		"verify.weights.max of the recipe is their limit. Any other wrong weight is a bug in llmexport"
}

// Validate implements Validator.
func (w *Weights) Validate() (key, problem string) {
	if w.Max != nil && !(*w.Max > 0) {
		return "max", "must be more than 0"
	}
	return "", ""
}

// Check implements Check.
func (w *Weights) Check(ctx context.Context, s *Subject) (Finding, error) {
	if s.Weights != nil {
		return *s.Weights, nil
	}
	if reason, ok := s.comparable(); !ok {
		return skip("%s", reason)
	}
	if s.Source.Reference == nil {
		return skip(needsWeights)
	}
	ops := map[[2]string]partOp{} // by weight file and name
	for _, part := range s.Package.Parts {
		for _, op := range part.Graph.AllOps() {
			ops[[2]string{part.WeightFile, op.Name}] = partOp{part, op}
		}
	}
	c := newComparison(s)
	var mu sync.Mutex
	most, mostName, count := 0.0, "", 0
	var first error
	kernel.Parallel(s.Options.Threads, len(s.Manifest.Tensors), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			t := &s.Manifest.Tensors[i]
			share, err := 0.0, ctx.Err()
			if err == nil {
				share, err = c.tensor(t, ops[[2]string{t.File, t.Op}])
			}
			mu.Lock()
			if err != nil && first == nil {
				first = ofPart(t.Part, fmt.Errorf("%s: %w", t.Name, err))
			}
			if share > most {
				most, mostName = share, t.Name
			}
			count++
			mu.Unlock()
		}
	})
	if first != nil {
		return fail(nil, "%v", first)
	}
	value := map[string]float64{"tensors": float64(count), "worst_share_of_bound": most}
	detail := fmt.Sprintf("all weights of %d tensors are as close to the source's as their methods promise", count)
	if mostName != "" {
		detail += fmt.Sprintf("; %s uses up most of its bound, %.3f", mostName, most)
	}
	if n := c.reported.Load(); n > 0 {
		detail += fmt.Sprintf("; %d matrices have exactly the errors that their methods reported", n)
	}
	if n := c.alone.Load(); n > 0 {
		detail += fmt.Sprintf("; %d matrices have no report of a method and were only found closer to the source's than to any other", n)
	}
	if n := c.unknown.Load(); n > 0 {
		detail += fmt.Sprintf("; %d matrices encode weights that were rewritten before and are not available: only NaN, infinity and zero rows were ruled out", n)
	}
	return Finding{Passed: true, Headline: shareOfBound(most), Value: value, Matrices: worst(c.errors)}.say("%s", detail)
}

// partOp is an op of a part; the zero value stands for a tensor that no op reads.
type partOp struct {
	part *runtime.Part
	op   *mnn.Op
}

// shareOfBound returns the headline for the largest share of a bound that any weight uses up.
func shareOfBound(worst float64) *Headline { return &Headline{Value: worst, Unit: "of bound"} }

// comparison compares stored tensors with floats.
type comparison struct {
	*Subject
	// floats are the encoded ones; known is false if they are not available, only the floats before a rewrite.
	floats *Source
	known  bool
	limit  float64 // of outputs
	// Matrices that agree with a method's report, of which there is no report, and whose floats are not known.
	reported, alone, unknown atomic.Int64

	mu     sync.Mutex
	errors []about.OpError
}

func newComparison(s *Subject) *comparison {
	c := &comparison{Subject: s, floats: s.Source, known: s.Closeness.Floats == quant.Kept, limit: s.Options.Checks.Weights.or(0)}
	if s.Fits != nil && s.Fits.Floats != nil {
		c.floats, c.known = &Source{Tensors: s.Fits.Floats}, true
	}
	if c.limit == 0 { // a matrix compensates for errors of earlier ones, so the fewest bits of all decide
		for _, t := range s.Manifest.Tensors {
			if spec, err := quant.ParseSpec(t.Spec); err == nil {
				c.limit = max(c.limit, outputErrors[spec.Bits])
			}
		}
	}
	return c
}

// tensor returns the largest share of a bound that any weight used up.
func (c *comparison) tensor(t *manifest.Tensor, of partOp) (float64, error) {
	names := strings.SplitN(t.Name, BiasSeparator, 2)
	src, info, err := c.floats.open(names[0])
	if err != nil {
		return 0, err
	}
	if t.Spec == "f32" {
		values, bias, err := of.floats()
		if err != nil {
			return 0, fmt.Errorf("op %q: %w", t.Op, err)
		}
		if err := c.vector(values, src, info); err != nil || len(names) == 1 {
			return 0, err
		}
		return 0, c.bias(names[1], bias)
	}
	spec, err := quant.ParseSpec(t.Spec)
	if err != nil {
		return 0, err
	}
	m := &mnn.Matrix{}
	if p, ok := opParam[*mnn.Convolution](of.op); ok {
		if m, err = p.Open(of.part.Weights()); err != nil {
			return 0, err
		}
		if err := sameSpec(m, spec); err != nil {
			return 0, err
		}
	} else if t.Op != EmbeddingOp || t.Part != "" {
		return 0, fmt.Errorf("op %q is not in the graph", t.Op)
	}
	var worst float64
	if c.Exact[names[0]] && t.Op != EmbeddingOp {
		err = equalMatrix(m, spec, src, info)
	} else {
		worst, err = c.matrix(m, spec, src, info, t.Op == EmbeddingOp)
	}
	if err != nil {
		return 0, err
	}
	if len(names) == 1 {
		return worst, nil
	}
	return worst, c.bias(names[1], m.Bias)
}

// floats reads the factors and offsets of a norm, or the values of a constant, from the weight file.
func (o partOp) floats() (values, bias []float32, err error) {
	if p, ok := opParam[*mnn.Blob](o.op); ok && len(p.External) > 0 {
		c, err := p.Open(o.part.Weights())
		return c.Floats, nil, err
	}
	if p, ok := opParam[*mnn.LayerNorm](o.op); ok && len(p.External) > 0 {
		values, bias, err = p.Norm32(o.part.Weights())
		if bias == nil { // there are none, or all are 0
			bias = make([]float32, biases(o.op))
		}
		return values, bias, err
	}
	return nil, nil, fmt.Errorf("no norm or constant with external weights")
}

// bias compares the vector that is stored after the weights of an op.
func (c *comparison) bias(name string, got []float32) error {
	src, info, err := c.floats.open(name)
	if err == nil {
		err = c.vector(got, src, info)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// vector requires the known values, or finite numbers.
func (c *comparison) vector(got []float32, src rowReader, info tensor.Info) error {
	if !c.known {
		return numbers(got)
	}
	return equalFloats(got, src, info)
}

// EmbeddingOp represents in a manifest the table that no op reads.
const EmbeddingOp = "embedding"

func opParam[P mnn.Param](op *mnn.Op) (P, bool) {
	var none P
	if op == nil {
		return none, false
	}
	p, ok := op.Param.(P)
	return p, ok
}

func sameSpec(m *mnn.Matrix, s quant.Spec) error {
	block := s.Block
	if s.Bits != 16 && block == quant.WholeRow {
		block = m.Cols
	}
	if m.Bits != s.Bits || (s.Bits != 16 && (m.Symmetric != s.Symmetric || m.Cols/m.Blocks != block || !m.Linear)) {
		return fmt.Errorf("stored with %d bits in %d blocks a row, symmetric %v, but the manifest says %s", m.Bits, m.Blocks, m.Symmetric, s)
	}
	return nil
}

// matrix reads rows as the graph does, or, for a separate table, as the embedding lookup does.
func (c *comparison) matrix(m *mnn.Matrix, spec quant.Spec, src rowReader, info tensor.Info, lookup bool) (float64, error) {
	if len(info.Shape) != 2 {
		return 0, fmt.Errorf("shape %v", info.Shape)
	}
	rows, cols := int(info.Shape[0]), int(info.Shape[1])
	if !lookup && (rows != m.Rows || cols != m.Cols) {
		return 0, fmt.Errorf("stored as %d x %d, the source has %v", m.Rows, m.Cols, info.Shape)
	}
	var judge func(r int, got, want []float32) (float64, error)
	if c.known {
		var err error
		if judge, err = judgeOf(c.Closeness, spec, cols, func(r, col int, want []float32) float64 { return bound(m, spec, want, r, col, lookup) }); err != nil {
			return 0, err
		}
	}
	want, got, codes := make([]float32, cols), make([]float32, cols), make([]uint8, cols)
	worst := 0.0
	var off, total float64 // squares of errors and of weights
	for r := range rows {
		if err := src.row(want, r); err != nil {
			return 0, err
		}
		if lookup {
			e, err := c.Package.Embed([]int32{int32(r)})
			if err != nil {
				return 0, err
			}
			if len(e) != cols {
				return 0, fmt.Errorf("embedding rows have %d elements, the source's %d", len(e), cols)
			}
			copy(got, e)
		} else {
			m.Rows32(got, codes, r, r+1)
		}
		d, w, err := distance(got, want)
		if err == nil && judge != nil {
			var share float64
			if share, err = judge(r, got, want); share > 1 && err == nil {
				err = tooFar(share, spec)
			}
			worst = max(worst, share)
		}
		if err != nil {
			return 0, fmt.Errorf("row %d: %w", r, err)
		}
		off, total = off+d, total+w
	}
	if !c.known {
		c.unknown.Add(1)
		return 0, nil
	}
	return c.whole(info.Name, spec, worst, off, total)
}

// whole checks a matrix against the report of its method; off and total are squares of errors and of weights.
func (c *comparison) whole(name string, spec quant.Spec, worst, off, total float64) (float64, error) {
	if total == 0 {
		return worst, nil
	}
	c.mu.Lock()
	c.errors = append(c.errors, about.OpError{Tensor: name, Spec: spec.String(), WeightError: off / total})
	c.mu.Unlock()
	var fit Fit
	if c.Fits != nil {
		fit = c.Fits.Reported[name]
	}
	if fit.Spec != spec.String() {
		if c.Closeness.Weights == quant.Fitted && spec.Bits != 16 {
			c.alone.Add(1)
			if off > strange*total {
				return 0, fmt.Errorf("is off by %.3g of its squared weights, as a matrix of another op would be", off/total)
			}
		}
		return worst, nil
	}
	c.reported.Add(1)
	const sums = 1e-9 // the order of sums
	switch {
	case math.Abs(off/total-fit.Weights) > sums*fit.Weights:
		return 0, fmt.Errorf("is off by %.12g of its squared weights, but its method reported %.12g, so it did not choose these weights", off/total, fit.Weights)
	case fit.Outputs > c.limit:
		return 0, fmt.Errorf("its method reported outputs that are off by %.3g of their squares, more than the limit of %.3g", fit.Outputs, c.limit)
	}
	return max(worst, fit.Outputs/c.limit), nil
}

// judgeOf returns a function that checks a row of a matrix against the guarantee of its method and returns the largest
// share of a bound that the row uses up, or nil if there is no guarantee for single rows. bound returns the bound of
// weight col of row r.
func judgeOf(c quant.Closeness, spec quant.Spec, cols int, bound func(r, col int, want []float32) float64) (
	func(r int, got, want []float32) (float64, error), error,
) {
	switch {
	case spec.Bits == 16 || c.Weights == quant.Rounded:
		return func(r int, got, want []float32) (float64, error) {
			return compareRow(got, want, func(col int) float64 { return bound(r, col, want) })
		}, nil
	case c.Weights == quant.Near:
		rounding, err := quant.NewRounding(spec, cols)
		if err != nil {
			return nil, err
		}
		var off []float64
		return func(_ int, got, want []float32) (float64, error) {
			least, err := rounding.Errors(want)
			if err != nil {
				return 0, err
			}
			off = resize(off, len(least))
			quant.BlockErrors(off, got, want)
			worst := 0.0
			for b, d := range off {
				if d == 0 {
					continue
				}
				var largest float64 // for the rounding of weights when they are read back
				for _, v := range want[b*cols/len(off) : (b+1)*cols/len(off)] {
					largest = max(largest, math.Abs(float64(v)))
				}
				ulp := 0x1p-23 * largest
				worst = max(worst, d/(float64(c.Factor*least[b])+float64(float64(ulp*ulp)*float64(cols/len(off)))))
			}
			return worst, nil
		}, nil
	}
	return nil, nil
}

// tooFar returns the error for rows that exceed their bound.
func tooFar(share float64, spec quant.Spec) error {
	return fmt.Errorf("a block is off by %.3g times the squared error that its method may leave at %s", share, spec)
}

// equalMatrix requires that codes, scales and zero terms encode the source's weights. The encoded value is exact in
// float64, and the source's weight is that value rounded once; an engine, which also rounds the product, may be off by
// the last bit.
func equalMatrix(m *mnn.Matrix, spec quant.Spec, src rowReader, info tensor.Info) error {
	if len(info.Shape) != 2 || int(info.Shape[0]) != m.Rows || int(info.Shape[1]) != m.Cols {
		return fmt.Errorf("stored as %d x %d, the source has %v", m.Rows, m.Cols, info.Shape)
	}
	if spec.Bits == 16 {
		return fmt.Errorf("stored as halves, but the source has codes")
	}
	want, codes, width := make([]float32, m.Cols), make([]uint8, m.Cols), m.Cols/m.Blocks
	for r := range m.Rows {
		if err := src.row(want, r); err != nil {
			return err
		}
		m.Unpack(codes, r, r+1)
		for c, u := range codes {
			b := r*m.Blocks + c/width
			w := float64(float64(m.Scale[b]) * float64(m.Samples[u]))
			if !m.Symmetric {
				w += float64(m.Zero[b])
			}
			if float32(w) != want[c] {
				return fmt.Errorf("row %d: weight %d is %g, not the %g of the source's codes", r, c, float32(w), want[c])
			}
		}
	}
	return nil
}

// distance returns the squared distance of a row from the source's, and the sum of its squared weights.
func distance(got, want []float32) (d, w float64, err error) {
	if err := numbers(got); err != nil {
		return 0, 0, err
	}
	var g float64
	for i, v := range got {
		e := float64(want[i] - v) // in float32, as calibrate measures
		d += float64(e * e)
		w += float64(float64(want[i]) * float64(want[i]))
		g += float64(float64(v) * float64(v))
	}
	if g == 0 && w > 0 {
		return 0, 0, fmt.Errorf("all weights are 0, those of the source are not")
	}
	return d, w, nil
}

// numbers requires that all values are finite.
func numbers(x []float32) error {
	if i := kernel.NonFinite(x); i >= 0 {
		return fmt.Errorf("value %d is %g", i, x[i])
	}
	return nil
}

// bound returns the largest error that weight c of a row may have.
func bound(m *mnn.Matrix, s quant.Spec, want []float32, r, c int, lookup bool) float64 {
	if s.Bits == 16 {
		return math.Max(math.Abs(float64(want[c]))*0x1p-11, 0x1p-25) * (1 + 1e-6)
	}
	if !lookup {
		b := r*m.Blocks + c/(m.Cols/m.Blocks)
		var zero float32
		if !m.Symmetric {
			zero = m.Zero[b]
		}
		return s.Bound(m.Scale[b], zero)
	}
	// A separate table is read row by row without access to its scales: the bound follows from the source's block.
	n := s.Block
	if n == quant.WholeRow {
		n = len(want)
	}
	block := want[c/n*n : c/n*n+n]
	lo, hi := block[0], block[0]
	for _, v := range block {
		lo, hi = min(lo, v), max(hi, v)
	}
	levels := float64(int(1)<<s.Bits - 1)
	scale := (float64(hi) - float64(lo)) / levels
	zero := float64(lo) + float64(scale*float64(int(1)<<(s.Bits-1)))
	if s.Symmetric {
		scale, zero = math.Max(math.Abs(float64(lo)), math.Abs(float64(hi)))/float64(int(1)<<(s.Bits-1)), 0
	}
	// The stored scale differs from this one by its own rounding, which Bound adds; 1 % covers its effect on the step.
	return float64(1.01*s.Bound(float32(scale), float32(zero))) + float64(1e-7*math.Max(math.Abs(float64(lo)), math.Abs(float64(hi))))
}

func compareRow(got, want []float32, bound func(c int) float64) (float64, error) {
	worst := 0.0
	zeroGot, zeroWant := true, true
	for c, g := range got {
		if g-g != 0 {
			return 0, fmt.Errorf("weight %d is %g", c, g)
		}
		zeroGot, zeroWant = zeroGot && g == 0, zeroWant && want[c] == 0
		d := math.Abs(float64(g) - float64(want[c]))
		if d == 0 {
			continue
		}
		b := bound(c)
		if d > b {
			return d / b, fmt.Errorf("weight %d is %g, the source has %g: off by %.3g, more than the %.3g of its spec", c, g, want[c], d, b)
		}
		worst = max(worst, d/b)
	}
	if zeroGot && !zeroWant {
		return 0, fmt.Errorf("all weights are 0, those of the source are not")
	}
	return worst, nil
}

func equalFloats(got []float32, src rowReader, info tensor.Info) error {
	n, err := info.Shape.Elements()
	if err != nil {
		return err
	}
	if int64(len(got)) != n {
		return fmt.Errorf("%d numbers stored, the source has %d", len(got), n)
	}
	want := make([]float32, n)
	if err := src.row(want, 0); err != nil {
		return err
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("element %d is %g, the source has %g", i, got[i], want[i])
		}
	}
	return nil
}
