package quantized

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Specs returns [Source.Spec] of all packed matrices, by name, with scales of type scale, or of F32 if scale is F16 and does
// not represent them exactly. The error names every matrix that cannot be stored unchanged.
func (s *Source) Specs(scale tensor.DType) (map[string]quant.Spec, error) {
	specs := make(map[string]quant.Spec, len(s.names))
	var errs []error
	for _, name := range s.names {
		sp, _, err := s.Spec(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if scale == tensor.F32 {
			sp.Scale = scale
		}
		specs[name] = sp
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return specs, nil
}

// Encoded returns a function that opens the bytes of a matrix as they are in a package, codes followed by scales, for the
// matrices of specs, a result of [Source.Specs]. For other matrices it returns nil. The readers are safe for concurrent use;
// they compute bytes when they are read, and cache nothing.
func (s *Source) Encoded(specs map[string]quant.Spec) func(name string) io.ReaderAt {
	specs = maps.Clone(specs)
	return func(name string) io.ReaderAt {
		l, sp := s.linears[name], specs[name]
		if l == nil || sp.Bits == 0 {
			return nil
		}
		return &encoded{l, sp}
	}
}

// encoded is the bytes of a matrix in a package.
type encoded struct {
	linear *linear
	spec   quant.Spec
}

// ReadAt implements io.ReaderAt.
func (e *encoded) ReadAt(p []byte, off int64) (int, error) {
	l := e.linear
	lay, err := e.spec.Layout(l.rows, l.cols)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.info.Name, err)
	}
	n := 0
	for n < len(p) {
		var k int
		switch pos := off + int64(n); {
		case pos < 0 || pos >= lay.Bytes():
			return n, io.EOF
		case pos < lay.Codes:
			k, err = e.part(p[n:], pos, lay.Codes, e.codes)
		default:
			k, err = e.part(p[n:], pos-lay.Codes, lay.Alpha, e.alpha)
		}
		n += k
		if err != nil {
			return n, fmt.Errorf("%s: %w", l.info.Name, err)
		}
	}
	return n, nil
}

// part copies from a region of size bytes of all rows, whose rows read computes, and returns the number of bytes.
func (e *encoded) part(p []byte, off, size int64, read func(dst []byte, lo, hi int) error) (int, error) {
	row := size / int64(e.linear.rows)
	lo := int(off / row)
	hi := int(min((off+int64(len(p))+row-1)/row, int64(e.linear.rows), int64(lo+max(1, tileElements/e.linear.cols))))
	b := make([]byte, int64(hi-lo)*row)
	if err := read(b, lo, hi); err != nil {
		return 0, err
	}
	return copy(p, b[off-int64(lo)*row:]), nil
}

func (e *encoded) codes(dst []byte, lo, hi int) error {
	codes := make([]uint8, (hi-lo)*e.linear.cols)
	if err := e.linear.readCodes(codes, lo, hi); err != nil {
		return err
	}
	quant.Pack(dst, codes, e.spec.Bits)
	return nil
}

func (e *encoded) alpha(dst []byte, lo, hi int) error {
	lay, err := e.spec.Layout(hi-lo, e.linear.cols)
	if err != nil {
		return err
	}
	b := quant.Blocks{Scale: make([]float32, lay.Rows*lay.Blocks)}
	if !e.spec.Symmetric {
		b.Zero = slices.Clone(b.Scale)
	}
	if err := e.linear.terms(b, lay, lo, hi); err != nil {
		return err
	}
	quant.PackAlpha(dst, b, e.spec)
	return nil
}
