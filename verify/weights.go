package verify

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// weights: every stored weight, read back as the engine reads it, is as close to the source's as the methods that the
// package was made with promise, and equal to them where codes were taken over; no number is NaN or infinite and no row is all zero where the source's is not.
type weights struct{}

// Closeness is what the methods of a package promise of its weights.
type Closeness int

const (
	// Rounded weights lie within the bound of their spec around the source's.
	Rounded Closeness = iota
	// Fitted weights were chosen for what the op makes of them: rows are near the source's as a whole.
	Fitted
	// Rewritten weights belong to a model that computes the same with other numbers: only the outputs tell.
	Rewritten
	// Rotated weights are rewritten in other coordinates, and so are the states between layers.
	Rotated
)

// fittedError bounds the squared error of a fitted matrix relative to its squared weights, by bits. It is about three
// times what the methods leave on the models of the tests; weights of another op would leave 1 to 2.
var fittedError = map[int]float64{2: 0.7, 3: 0.3, 4: 0.1, 5: 0.04, 6: 0.02, 8: 0.005}

// fittedRow is how much worse than its matrix a row may be.
const fittedRow = 3

func (weights) String() string { return "weights" }

func (weights) Check(ctx context.Context, s *Subject) (Finding, error) {
	if s.Weights != nil {
		return *s.Weights, nil
	}
	if reason, ok := s.comparable(); !ok {
		return skip("%s", reason)
	}
	if s.Source.Reference == nil {
		return skip(needsWeights)
	}
	ops := map[string]*mnn.Op{}
	for _, op := range s.Package.Graph.AllOps() {
		ops[op.Name] = op
	}
	var mu sync.Mutex
	worst, worstName, count := 0.0, "", 0
	var first error
	kernel.Parallel(s.Options.Threads, len(s.Manifest.Tensors), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			t := &s.Manifest.Tensors[i]
			share, err := 0.0, ctx.Err()
			if err == nil {
				share, err = compareTensor(s, t, ops[t.Op])
			}
			mu.Lock()
			if err != nil && first == nil {
				first = fmt.Errorf("%s: %w", t.Name, err)
			}
			if share > worst {
				worst, worstName = share, t.Name
			}
			count++
			mu.Unlock()
		}
	})
	if first != nil {
		return fail(nil, "%v", first)
	}
	value := map[string]float64{"tensors": float64(count), "worst_share_of_bound": worst}
	return pass(value, "all weights of %d tensors within the bounds of their specs; closest is %s at %.3f of its bound", count, worstName, worst)
}

// compareTensor returns the largest share of a bound that any weight used up.
func compareTensor(s *Subject, t *manifest.Tensor, op *mnn.Op) (float64, error) {
	names := strings.SplitN(t.Name, BiasSeparator, 2)
	src, info, err := s.Source.open(names[0])
	if err != nil {
		return 0, err
	}
	if t.Spec == "f32" {
		values, bias, err := storedFloats(s, op)
		if err != nil {
			return 0, fmt.Errorf("op %q: %w", t.Op, err)
		}
		if err := s.compareFloats(values, src, info); err != nil || len(names) == 1 {
			return 0, err
		}
		return 0, compareBias(s, names[1], bias)
	}
	spec, err := quant.ParseSpec(t.Spec)
	if err != nil {
		return 0, err
	}
	m := &mnn.Matrix{}
	if p, ok := opParam[*mnn.Convolution](op); ok {
		if m, err = p.Open(s.Package.Weights()); err != nil {
			return 0, err
		}
		if err := sameSpec(m, spec); err != nil {
			return 0, err
		}
	} else if t.Op != EmbeddingOp {
		return 0, fmt.Errorf("op %q is not in the graph: %w", t.Op, tensor.ErrCorrupt)
	}
	var worst float64
	if s.Exact[names[0]] && t.Op != EmbeddingOp {
		err = equalMatrix(m, spec, src, info)
	} else {
		worst, err = compareMatrix(s, m, spec, src, info, t.Op == EmbeddingOp)
	}
	if err != nil {
		return 0, err
	}
	if len(names) == 1 {
		return worst, nil
	}
	return worst, compareBias(s, names[1], m.Bias)
}

// storedFloats reads the factors and offsets of a norm, or the values of a constant, from the weight file.
func storedFloats(s *Subject, op *mnn.Op) (values, bias []float32, err error) {
	if p, ok := opParam[*mnn.Blob](op); ok && len(p.External) > 0 {
		c, err := p.Open(s.Package.Weights())
		return c.Floats, nil, err
	}
	if p, ok := opParam[*mnn.LayerNorm](op); ok && len(p.External) > 0 {
		values, bias, err = p.Norm32(s.Package.Weights())
		if bias == nil { // there are none, or all are 0
			bias = make([]float32, biases(op))
		}
		return values, bias, err
	}
	return nil, nil, fmt.Errorf("no norm or constant with external weights: %w", tensor.ErrCorrupt)
}

// compareBias compares the vector that is stored behind the weights of an op.
func compareBias(s *Subject, name string, got []float32) error {
	src, info, err := s.Source.open(name)
	if err == nil {
		err = s.compareFloats(got, src, info)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// compareFloats demands the source's values, or of a package that is rewritten, numbers.
func (s *Subject) compareFloats(got []float32, src rowReader, info tensor.Info) error {
	if s.Closeness >= Rewritten {
		return numbers(got)
	}
	return equalFloats(got, src, info)
}

// EmbeddingOp stands in a manifest for the table that no op reads.
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
		return fmt.Errorf("stored with %d bits in %d blocks a row, symmetric %v, but the manifest says %s: %w", m.Bits, m.Blocks, m.Symmetric, s, tensor.ErrCorrupt)
	}
	return nil
}

// compareMatrix reads rows as the graph does, or, for a table of its own, as the embedding lookup does.
func compareMatrix(s *Subject, m *mnn.Matrix, spec quant.Spec, src rowReader, info tensor.Info, lookup bool) (float64, error) {
	if len(info.Shape) != 2 {
		return 0, fmt.Errorf("shape %v: %w", info.Shape, tensor.ErrCorrupt)
	}
	rows, cols := int(info.Shape[0]), int(info.Shape[1])
	if !lookup && (rows != m.Rows || cols != m.Cols) {
		return 0, fmt.Errorf("stored as %d x %d, the source has %v: %w", m.Rows, m.Cols, info.Shape, tensor.ErrCorrupt)
	}
	want, got, codes := make([]float32, cols), make([]float32, cols), make([]uint8, cols)
	worst := 0.0
	var off, total float64 // squares of errors and of weights
	for r := range rows {
		if err := src.row(want, r); err != nil {
			return 0, err
		}
		if lookup {
			e, err := s.Package.Embed([]int32{int32(r)})
			if err != nil {
				return 0, err
			}
			if len(e) != cols {
				return 0, fmt.Errorf("embedding rows have %d elements, the source's %d: %w", len(e), cols, tensor.ErrCorrupt)
			}
			copy(got, e)
		} else {
			m.Rows32(got, codes, r, r+1)
		}
		if s.Closeness >= Rewritten || s.Closeness == Fitted && spec.Bits != 16 {
			d, w, err := distance(got, want)
			if err == nil && s.Closeness == Fitted && d > fittedRow*fittedError[spec.Bits]*w {
				err = tooFar(d/w, fittedRow*fittedError[spec.Bits], spec.Bits)
			}
			if err != nil {
				return 0, fmt.Errorf("row %d: %w", r, err)
			}
			off, total = off+d, total+w
			continue
		}
		share, err := compareRow(got, want, func(c int) float64 { return bound(m, spec, want, r, c, lookup) })
		if err != nil {
			return 0, fmt.Errorf("row %d: %w", r, err)
		}
		worst = max(worst, share)
	}
	return s.Closeness.Share(spec, worst, off, total)
}

// equalMatrix demands that codes, scales and zero terms stand for the source's weights. What they stand for is exact in
// float64, and the source's weights are that number rounded once; an engine, which rounds the product too, may be off by
// the last bit.
func equalMatrix(m *mnn.Matrix, spec quant.Spec, src rowReader, info tensor.Info) error {
	if len(info.Shape) != 2 || int(info.Shape[0]) != m.Rows || int(info.Shape[1]) != m.Cols {
		return fmt.Errorf("stored as %d x %d, the source has %v: %w", m.Rows, m.Cols, info.Shape, tensor.ErrCorrupt)
	}
	if spec.Bits == 16 {
		return fmt.Errorf("stored as halves, but the source has codes: %w", tensor.ErrCorrupt)
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
				return fmt.Errorf("row %d: weight %d is %g, not the %g of the source's codes: %w", r, c, float32(w), want[c], tensor.ErrCorrupt)
			}
		}
	}
	return nil
}

// distance is the squared distance of a row from the source's, and the sum of its squared weights.
func distance(got, want []float32) (d, w float64, err error) {
	if err := numbers(got); err != nil {
		return 0, 0, err
	}
	var g float64
	for i, v := range got {
		e := float64(v) - float64(want[i])
		d += float64(e * e)
		w += float64(float64(want[i]) * float64(want[i]))
		g += float64(float64(v) * float64(v))
	}
	if g == 0 && w > 0 {
		return 0, 0, fmt.Errorf("all weights are 0, those of the source are not: %w", tensor.ErrCorrupt)
	}
	return d, w, nil
}

// numbers demands that all values are finite.
func numbers(x []float32) error {
	if i := kernel.NonFinite(x); i >= 0 {
		return fmt.Errorf("value %d is %g: %w", i, x[i], tensor.ErrCorrupt)
	}
	return nil
}

// bound is the largest error that weight c of a row may have.
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
	// A table of its own is read row by row without access to its scales: the bound follows from the source's block.
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
			return 0, fmt.Errorf("weight %d is %g: %w", c, g, tensor.ErrCorrupt)
		}
		zeroGot, zeroWant = zeroGot && g == 0, zeroWant && want[c] == 0
		d := math.Abs(float64(g) - float64(want[c]))
		if d == 0 {
			continue
		}
		b := bound(c)
		if d > b {
			return 0, fmt.Errorf("weight %d is %g, the source has %g: off by %.3g, more than the %.3g of its spec: %w", c, g, want[c], d, b, tensor.ErrCorrupt)
		}
		worst = max(worst, d/b)
	}
	if zeroGot && !zeroWant {
		return 0, fmt.Errorf("all weights are 0, those of the source are not: %w", tensor.ErrCorrupt)
	}
	return worst, nil
}

// rowReader reads rows of a source tensor as floats.
type rowReader struct {
	read func(b []byte, off int64) error
	info tensor.Info
	raw  []byte
}

// open finds a tensor of the checkpoint.
func (s *Source) open(name string) (rowReader, tensor.Info, error) {
	s.index.Do(func() {
		s.infos = map[string]tensor.Info{}
		for _, t := range s.Tensors.Tensors() {
			s.infos[t.Name] = t
		}
	})
	t, ok := s.infos[name]
	if !ok {
		return rowReader{}, t, fmt.Errorf("the source has no such tensor: %w", tensor.ErrCorrupt)
	}
	r, err := s.Tensors.Open(name)
	if err != nil {
		return rowReader{}, t, err
	}
	return rowReader{info: t, read: func(b []byte, off int64) error {
		_, err := r.ReadAt(b, off)
		return err
	}}, t, nil
}

// row fills dst with row r of len(dst) elements.
func (s *rowReader) row(dst []float32, r int) error {
	size := s.info.DType.Size()
	if s.raw == nil {
		s.raw = make([]byte, int64(len(dst))*size)
	}
	if err := s.read(s.raw, int64(r)*int64(len(dst))*size); err != nil {
		return err
	}
	return kernel.ToF32(dst, s.raw, s.info.DType)
}

func equalFloats(got []float32, src rowReader, info tensor.Info) error {
	n, err := info.Shape.Elements()
	if err != nil {
		return err
	}
	if int64(len(got)) != n {
		return fmt.Errorf("%d numbers stored, the source has %d: %w", len(got), n, tensor.ErrCorrupt)
	}
	want := make([]float32, n)
	if err := src.row(want, 0); err != nil {
		return err
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("element %d is %g, the source has %g: %w", i, got[i], want[i], tensor.ErrCorrupt)
		}
	}
	return nil
}
