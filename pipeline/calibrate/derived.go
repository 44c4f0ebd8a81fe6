package calibrate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// derived computes the bytes of a changed tensor. It is safe for concurrent use.
type derived struct {
	name   string
	change *change
	from   io.ReaderAt
	dtype  tensor.DType // of from
	cols   int
	size   int64 // of the result, in bytes
}

// derivedElements is how many elements are converted at a time.
const derivedElements = 1 << 14

// derivedBuffer is the memory for converting them.
type derivedBuffer struct {
	raw, out []byte
	values   []float32
}

var derivedBuffers = sync.Pool{New: func() any {
	return &derivedBuffer{make([]byte, 8*derivedElements), make([]byte, 0, 4*derivedElements), make([]float32, derivedElements)}
}}

// ReadAt implements io.ReaderAt.
func (d *derived) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: negative offset", d.name)
	}
	b := derivedBuffers.Get().(*derivedBuffer)
	defer derivedBuffers.Put(b)
	n := 0
	for n < len(p) && off < d.size {
		first := off / 4
		count := min(derivedElements, (off-4*first+int64(len(p)-n)+3)/4, d.size/4-first)
		if err := d.convert(b, first, int(count)); err != nil {
			return n, err
		}
		k := copy(p[n:], b.out[off-4*first:])
		n, off = n+k, off+int64(k)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// convert fills b.out with count elements from the first one on.
func (d *derived) convert(b *derivedBuffer, first int64, count int) error {
	size := int(d.dtype.Size())
	raw, values := b.raw[:count*size], b.values[:count]
	n, err := d.from.ReadAt(raw, first*int64(size))
	switch {
	case n == len(raw): // with or without io.EOF
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%s: ends within element %d: %w", d.name, first+int64(n/size), tensor.ErrCorrupt)
	default:
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if err := kernel.ToF32(values, raw, d.dtype); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	row, col := int(first/int64(d.cols)), int(first%int64(d.cols))
	for rest := values; len(rest) > 0; row, col = row+1, 0 {
		run := rest[:min(len(rest), d.cols-col)]
		rest = rest[len(run):]
		if d.change.rows != nil {
			f := d.change.rows[row]
			for i := range run {
				run[i] *= f
			}
		}
		if d.change.columns != nil {
			kernel.Mul(run, run, d.change.columns[col:col+len(run)])
		}
	}
	b.out = putFloats(b.out[:0], values)
	return nil
}

// putFloats appends values, little endian.
func putFloats(b []byte, values []float32) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// file reads a file that is open only during a read: a model has more tensors than a process may have open files.
type file string

// ReadAt implements io.ReaderAt.
func (f file) ReadAt(p []byte, off int64) (int, error) {
	r, err := f.open()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return r.ReadAt(p, off)
}

func (f file) open() (*os.File, error) { return os.Open(string(f)) }
