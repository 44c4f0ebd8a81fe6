package arch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// viewReader reads a view.
type viewReader struct {
	*openView
	s    *views
	base *io.SectionReader
}

// ReadAt implements io.ReaderAt. Partly read rows are computed as a whole.
func (r *viewReader) ReadAt(p []byte, off int64) (int, error) {
	info := r.info()
	if off < 0 || off >= info.Size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), info.Size-off))
	if r.Zeros > 0 {
		if err := r.wide(p[:n], off); err != nil {
			return 0, err
		}
	} else if r.then != nil {
		if err := r.stacked(p[:n], off); err != nil {
			return 0, err
		}
	} else if r.Transposed {
		b, err := r.s.turned(r)
		if err != nil {
			return 0, err
		}
		copy(p[:n], b[off:])
	} else if err := r.rows(p[:n], off, info.DType.Size()*int64(r.width())); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// wide fills p from offset off of rows that end in zeros, or in those of another tensor.
func (r *viewReader) wide(p []byte, off int64) error {
	size := r.of.DType.Size()
	width, all := int64(r.width())*size, int64(r.Cols)*size
	var side io.ReaderAt
	if r.Side != "" {
		var err error
		if side, err = r.s.src.Open(r.Side); err != nil {
			return err
		}
	}
	clear(p)
	for len(p) > 0 {
		row, in := off/all, off%all
		n := min(int64(len(p)), all-in)
		if in < width {
			n = min(n, width-in)
			if err := readFull(r.base, p[:n], row*width+in); err != nil {
				return err
			}
		} else if side != nil {
			if err := readFull(side, p[:n], row*(all-width)+in-width); err != nil {
				return err
			}
		}
		p, off = p[n:], off+n
	}
	return nil
}

// stacked fills p from offset off of concatenated tensors.
func (r *viewReader) stacked(p []byte, off int64) error {
	for _, t := range r.whole() {
		if off >= t.Size {
			off -= t.Size
			continue
		}
		src, err := r.s.src.Open(t.Name)
		if err != nil {
			return err
		}
		n := min(int64(len(p)), t.Size-off)
		if err := readFull(src, p[:n], off); err != nil {
			return err
		}
		if p, off = p[n:], 0; len(p) == 0 {
			break
		}
	}
	return nil
}

// rows fills p from offset off; a row of the view has width bytes.
func (r *viewReader) rows(p []byte, off, width int64) error {
	first := 0 // row of the view with which the run begins
	for _, run := range r.runs() {
		lo, hi := int64(first)*width, int64(first+run.Count)*width
		first += run.Count
		from, to := max(off, lo), min(off+int64(len(p)), hi)
		if from >= to {
			continue
		}
		part := p[from-off : to-off]
		var err error
		if r.computed() {
			err = r.compute(part, run, from-lo, lo/width, width)
		} else {
			err = r.copy(part, run, from-lo, width)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copy fills p from offset off of a run.
func (r *viewReader) copy(p []byte, run Run, off, width int64) error {
	if run.Step <= 1 {
		return readFull(r.base, p, int64(run.Start)*width+off)
	}
	for len(p) > 0 {
		row, in := off/width, off%width
		n := min(int64(len(p)), width-in)
		if err := readFull(r.base, p[:n], (int64(run.Start)+row*int64(run.Step))*width+in); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// compute is copy for elements that are computed; the run begins at row first of the view.
func (r *viewReader) compute(p []byte, run Run, off, first, width int64) error {
	lo, hi := off/width, (off+int64(len(p))+width-1)/width
	cols := int64(r.width())
	x := make([]float32, (hi-lo)*cols)
	if r.Tensor == "" {
		for i := range x {
			x[i] = 1
		}
	} else {
		size := r.of.DType.Size()
		raw := make([]byte, int64(len(x))*size)
		if err := r.copy(raw, run, lo*cols*size, cols*size); err != nil {
			return err
		}
		if err := kernel.ToF32(x, raw, r.of.DType); err != nil {
			return err
		}
		r.apply(x, run)
	}
	if r.Plus != "" {
		if err := r.add(x, (first+lo)*cols); err != nil {
			return err
		}
	}
	if r.Batch != nil {
		if err := r.fold(x, first+lo, int(cols)); err != nil {
			return err
		}
	}
	b := floatBytes(x)
	copy(p, b[off-lo*width:])
	return nil
}

// apply computes map and scale.
func (v *View) apply(x []float32, run Run) {
	switch v.Map {
	case UnitRows:
		for row := range slices.Chunk(x, v.width()) {
			unit(row)
		}
	case ChannelsLast:
		for row := range slices.Chunk(x, v.width()) {
			channelsLast(row)
		}
	}
	for i, w := range x {
		switch v.Map {
		case OnePlus:
			w = 1 + w
		case NegExp:
			w = -float32(kernel.Exp(float64(w)))
		case Softplus:
			t := float64(w)
			w = float32(max(t, 0) + kernel.Log(1+kernel.Exp(-math.Abs(t))))
		}
		if run.Scale != 0 {
			w = float32(float64(w) * run.Scale)
		}
		x[i] = w
	}
}

// unit divides a row by its length, at least 1e-12.
func unit(row []float32) {
	sum := 0.0
	for _, w := range row {
		sum += float64(float64(w) * float64(w)) // not fused, which would differ between machines
	}
	length := max(math.Sqrt(sum), 1e-12)
	for i, w := range row {
		row[i] = float32(float64(w) / length)
	}
}

// channelsLast turns a row of kernels of 3 x 3.
func channelsLast(row []float32) {
	turned, channels := make([]float32, len(row)), len(row)/9
	for i, w := range row {
		turned[i%9*channels+i/9] = w
	}
	copy(row, turned)
}

// fold computes rows of a convolution with its norm, or their biases, from row at on.
func (r *viewReader) fold(x []float32, at int64, cols int) error {
	var parts [4][]float32
	for i, info := range r.batch {
		var err error
		if parts[i], err = r.elements(info, at, len(x)/cols); err != nil {
			return err
		}
	}
	for i := range x {
		row := i / cols
		factor := float64(parts[0][row]) / math.Sqrt(float64(parts[1][row])+r.Batch.Eps)
		if r.Cols > 0 {
			x[i] = float32(float64(x[i]) * factor)
			continue
		}
		bias := 0.0
		if r.Tensor != "" {
			bias = float64(x[i])
		}
		x[i] = float32(float64(parts[3][row]) - float64((float64(parts[2][row])-bias)*factor))
	}
	return nil
}

// elements reads n elements of a tensor of the checkpoint from element at on.
func (r *viewReader) elements(info *tensor.Info, at int64, n int) ([]float32, error) {
	t, err := r.s.src.Open(info.Name)
	if err != nil {
		return nil, err
	}
	raw, y := make([]byte, int64(n)*info.DType.Size()), make([]float32, n)
	if err := readFull(t, raw, at*info.DType.Size()); err != nil {
		return nil, err
	}
	return y, kernel.ToF32(y, raw, info.DType)
}

// add adds the elements of Plus from element at on.
func (r *viewReader) add(x []float32, at int64) error {
	y, err := r.elements(r.plus, at, len(x))
	if err != nil {
		return err
	}
	for i, v := range y {
		x[i] += v
	}
	return nil
}

// readFull fills p from offset at.
func readFull(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("tensor ends early: %w", tensor.ErrCorrupt)
	}
	return err
}

func floatBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
