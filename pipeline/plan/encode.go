package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// encoder is the state of one worker.
type encoder struct {
	part      *Part
	src       tensor.Source
	quantizer quant.Quantizer
	encoded   func(tensor string) io.ReaderAt // or nil
	compare   func(it *Item, codes, alpha []byte, rows []float32) (share float64, err error)
	item      *Item
	encode    quant.Encoder // of item
	raw       []byte
	rows      []float32
	blocks    quant.Blocks
}

func (e *encoder) run(c *chunk) error {
	it := &e.part.Items[c.item]
	cols := max(it.Slot.Weight.Cols, 1)
	size := int(it.Source.DType.Size())
	rows := int64(c.hi - c.lo)
	codes, alpha := it.Codes/int64(it.Slot.Weight.Rows), it.Alpha/int64(it.Slot.Weight.Rows) // bytes of a row
	c.buf = grow(*bufs.Get().(*[]byte), int(rows*(codes+alpha)))
	c.codes, c.alpha = c.buf[:rows*codes], c.buf[rows*codes:]
	if e.encoded != nil {
		if r := e.encoded(it.Source.Name); r != nil {
			return errors.Join(readRows(r, c.codes, int64(c.lo)*codes), readRows(r, c.alpha, it.Codes+int64(c.lo)*alpha))
		}
	}
	r, err := e.src.Open(it.Source.Name)
	if err != nil {
		return err
	}
	e.raw = grow(e.raw, (c.hi-c.lo)*cols*size)
	if err := readRows(r, e.raw, int64(c.lo)*int64(cols)*int64(size)); err != nil {
		return fmt.Errorf("row %d: %w", c.lo, err)
	}
	step := max(1, pieceElements/cols)
	for lo := c.lo; lo < c.hi; lo += step {
		hi := min(lo+step, c.hi)
		from, to := int64(lo-c.lo), int64(hi-c.lo)
		e.rows = grow(e.rows, (hi-lo)*cols)
		if err := kernel.ToF32(e.rows, e.raw[int(from)*cols*size:int(to)*cols*size], it.Source.DType); err != nil {
			return err
		}
		if err := e.piece(c.codes[from*codes:to*codes], c.alpha[from*alpha:to*alpha], it, hi-lo); err != nil {
			if !it.Matrix() {
				return err
			}
			return fmt.Errorf("rows %d to %d: %w", lo, hi-1, err)
		}
		if e.compare != nil {
			share, err := e.compare(it, c.codes[from*codes:to*codes], c.alpha[from*alpha:to*alpha], e.rows)
			if err != nil {
				return fmt.Errorf("rows %d to %d: %w", lo, hi-1, err)
			}
			c.share = max(c.share, share)
		}
	}
	return nil
}

// readRows fills b from offset at.
func readRows(r io.ReaderAt, b []byte, at int64) error {
	if n, err := r.ReadAt(b, at); n < len(b) { // a full read may return io.EOF
		return noEOF(err)
	}
	return nil
}

// piece encodes whole rows.
func (e *encoder) piece(codes, alpha []byte, it *Item, rows int) error {
	sp := it.Choice.Spec
	switch {
	case !it.Matrix():
		for i, v := range e.rows {
			binary.LittleEndian.PutUint32(codes[4*i:], math.Float32bits(v))
		}
		return allFinite(e.rows, math.MaxFloat32)
	case sp.Bits == 16:
		kernel.F32ToF16(codes, e.rows)
		return allFinite(e.rows, 65504)
	}
	e.blocks.Codes = grow(e.blocks.Codes, len(e.rows))
	e.blocks.Scale, e.blocks.Zero = grow(e.blocks.Scale, rows*it.Layout.Blocks), grow(e.blocks.Zero, rows*it.Layout.Blocks)
	if e.item != it {
		by := e.quantizer
		if it.Slot.Tower && e.encoded != nil {
			by = quant.RTN{} // calibration has no input for it
		}
		var err error
		if e.encode, err = by.Prepare(sp, it.Layout.Cols, nil, 1); err != nil {
			return err
		}
		e.item = it
	}
	if err := e.encode.Encode(e.blocks, quant.Matrix{Rows: rows, Cols: it.Layout.Cols, Data: e.rows}); err != nil {
		return err
	}
	quant.Pack(codes, e.blocks.Codes, sp.Bits)
	quant.PackAlpha(alpha, e.blocks, sp)
	return nil
}

// allFinite returns an error that names the first weight that is not a number from -limit to limit.
func allFinite(x []float32, limit float32) error {
	var lo, hi [1]float32
	kernel.BlockExtremes(lo[:], hi[:], x)
	if lo[0] >= -limit && hi[0] <= limit {
		return nil
	}
	for _, v := range x {
		if !(v <= limit && v >= -limit) {
			if v-v != 0 {
				return fmt.Errorf("weight is NaN or infinite: %w", tensor.ErrCorrupt)
			}
			return fmt.Errorf("weight %g exceeds the range of fp16: %w", v, tensor.ErrUnsupported)
		}
	}
	return nil
}

func readFloats(src tensor.Source, info tensor.Info, n int) ([]float32, error) {
	r, err := src.Open(info.Name)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, int64(n)*info.DType.Size())
	if err := readRows(r, raw, 0); err != nil {
		return nil, err
	}
	v := make([]float32, n)
	if err := kernel.ToF32(v, raw, info.DType); err != nil {
		return nil, err
	}
	return v, allFinite(v, math.MaxFloat32)
}

// noEOF turns the end of a file into tensor.ErrCorrupt.
func noEOF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("file ends early: %w", tensor.ErrCorrupt)
	}
	return err
}

func floatBytes(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}
