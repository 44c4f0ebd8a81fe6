package plan

import (
	"fmt"
	"io"
	"sync"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// spanner assembles spans from finished chunks: header, codes, scales, bias.
type spanner struct {
	part *Part
	src  tensor.Source

	at    int64 // bytes of the span so far
	span  digest.Hash
	alpha []byte  // scales of the item so far; they follow the codes
	share float64 // of the item so far
}

func (s *spanner) chunk(c *chunk) error {
	it := &s.part.Items[c.item]
	if c.err != nil {
		return fmt.Errorf("%s: %w", it.Slot.Weight.Tensor, c.err)
	}
	if c.lo == 0 {
		s.at, s.span, s.share, s.alpha = 0, digest.New(), 0, grow(*alphas.Get().(*[]byte), int(it.Alpha+it.Bias))[:0]
		if it.Header > 0 {
			c.head = mnn.AppendHeader(nil, it.Layout.Rows, it.Layout.Cols, it.Choice.Spec.Bits)
		}
	}
	s.alpha = append(s.alpha, c.alpha...)
	s.share = max(s.share, c.share)
	last := c.hi == it.Slot.Weight.Rows
	if last {
		c.tail = s.alpha
		if it.Bias > 0 {
			b, err := readFloats(s.src, *it.BiasSource, it.Slot.Bias.Rows)
			if err != nil {
				return fmt.Errorf("%s: %w", it.Slot.Bias.Tensor, err)
			}
			c.tail = append(c.tail, floatBytes(b)...)
		}
	}
	for _, b := range [][]byte{c.head, c.codes, c.tail} {
		s.span.Write(b)
		s.at += int64(len(b))
	}
	if last {
		if s.at != it.Size() {
			return fmt.Errorf("internal error: %s has %d bytes, planned %d", it.Slot.Name, s.at, it.Size())
		}
		c.sum, c.share = s.span.Hex(), s.share
	}
	return nil
}

// writer writes chunks to the file and reports them.
type writer struct {
	part     *Part
	dst      io.Writer
	seeker   io.Seeker // dst, if items do not follow each other
	compared func(item int, share float64)
	done     func(item int, sum string) error
	progress func(done int64)
	at       int64
	written  int64
}

func (w *writer) chunk(c *chunk) error {
	if it := &w.part.Items[c.item]; c.lo == 0 && w.seeker != nil {
		if _, err := w.seeker.Seek(it.Offset, io.SeekStart); err != nil {
			return err
		}
		w.at = it.Offset
	} else if c.lo == 0 && w.at != it.Offset {
		return fmt.Errorf("internal error: %s at %d, planned %d", it.Slot.Name, w.at, it.Offset)
	}
	for _, b := range [][]byte{c.head, c.codes, c.tail} {
		if len(b) == 0 {
			continue
		}
		n, err := w.dst.Write(b)
		w.at, w.written = w.at+int64(n), w.written+int64(n)
		if err != nil {
			return err
		}
	}
	buf, tail := c.buf, c.tail // copies, so that the pools do not keep the chunk
	bufs.Put(&buf)
	if c.sum != "" {
		alphas.Put(&tail)
	}
	if w.progress != nil {
		w.progress(w.written)
	}
	if c.sum != "" && w.compared != nil {
		w.compared(c.item, c.share)
	}
	if c.sum != "" && w.done != nil {
		return w.done(c.item, c.sum)
	}
	return nil
}

// bufs and alphas recycle the buffers that travel from workers to the file: bufs holds rows of chunks, alphas the scales of
// whole items, which may be much larger.
var bufs, alphas = sync.Pool{New: newBuffer}, sync.Pool{New: newBuffer}

func newBuffer() any { return new([]byte) }

func grow[T any](b []T, n int) []T {
	if cap(b) < n {
		return make([]T, n)
	}
	return b[:n]
}
