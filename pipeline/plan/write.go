package plan

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// WriteOptions configures Write.
type WriteOptions struct {
	Encoder quant.Encoder
	// Threads that encode, at least 1.
	Threads int
	// Memory is the limit in bytes for buffers; the number of chunks in flight follows from it.
	Memory int64
	// From is the first item to write; the bytes of the items before it are already in the file.
	From int
	// File is the running hash of the file, fed with the bytes before From; nil starts a new one.
	File hash.Hash
	// Done is called after each item with the hex SHA-256 of its span, once its bytes are written.
	Done func(item int, sum string) error
	// Progress, if set, is told the bytes written so far of p.Bytes.
	Progress func(done int64)
}

// chunkElements is the number of weights that one worker encodes at a time: 1 MiB of floats, small enough
// to stay in a cache and large enough to make the hand-over cheap.
const chunkElements = 1 << 18

// chunkBytes is what a chunk needs at most: source (8), floats (4), codes (1), packed (2), scales.
const chunkBytes = chunkElements * 16

// chunk is a run of rows of one item on its way from the source to the file.
type chunk struct {
	item   int
	lo, hi int
	// codes and alpha are the encoded rows; they are valid when done is closed.
	codes, alpha []byte
	err          error
	done         chan struct{}
}

// Write streams the plan's items from src to dst in order. The bytes do not depend on Threads or Memory. It
// returns the hex SHA-256 of the whole file. Weights that are NaN or infinite are tensor.ErrCorrupt.
func (p *Plan) Write(ctx context.Context, dst io.Writer, src tensor.Source, o WriteOptions) (string, error) {
	file := o.File
	if file == nil {
		file = sha256.New()
	}
	window := int(o.Memory / chunkBytes)
	window = max(2, min(window, 4*o.Threads))
	g, ctx := errgroup.WithContext(ctx)
	work := make(chan *chunk)
	order := make(chan *chunk, window)
	g.Go(func() error {
		defer close(work)
		defer close(order)
		return p.cut(ctx, o.From, work, order)
	})
	for range min(max(o.Threads, 1), window) {
		g.Go(func() error {
			e := &encoder{plan: p, src: src, encode: o.Encoder}
			for c := range work {
				c.err = e.run(c)
				close(c.done)
			}
			return nil
		})
	}
	g.Go(func() error {
		w := &spanWriter{plan: p, dst: dst, src: src, file: file, opt: o}
		w.at = p.offset(o.From)
		for c := range order {
			select {
			case <-c.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := w.chunk(c); err != nil {
				return err
			}
		}
		if ctx.Err() == nil && w.at != p.Bytes {
			return fmt.Errorf("internal error: wrote %d of %d bytes", w.at, p.Bytes)
		}
		return context.Cause(ctx)
	})
	if err := g.Wait(); err != nil {
		return "", err
	}
	return hex.EncodeToString(file.Sum(nil)), nil
}

func (p *Plan) offset(item int) int64 {
	if item == len(p.Items) {
		return p.Bytes
	}
	return p.Items[item].Offset
}

// cut hands out the rows of every item, to the workers and, in the same order, to the writer.
func (p *Plan) cut(ctx context.Context, from int, work, order chan<- *chunk) error {
	for i := from; i < len(p.Items); i++ {
		w := p.Items[i].Slot.Weight
		step := w.Rows
		if p.Items[i].Slot.Kind != lower.NormSlot {
			step = max(1, chunkElements/w.Cols)
		}
		for lo := 0; lo < w.Rows; lo += step {
			c := &chunk{item: i, lo: lo, hi: min(lo+step, w.Rows), done: make(chan struct{})}
			select {
			case order <- c:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			select {
			case work <- c:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// spanWriter puts finished chunks into the file: header, codes, scales, bias.
type spanWriter struct {
	plan *Plan
	dst  io.Writer
	src  tensor.Source
	file hash.Hash
	opt  WriteOptions
	at   int64

	span  hash.Hash
	alpha []byte // scales of the item so far; they follow the codes
}

func (w *spanWriter) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	w.file.Write(b)
	w.span.Write(b)
	n, err := w.dst.Write(b)
	w.at += int64(n)
	return err
}

func (w *spanWriter) chunk(c *chunk) error {
	it := &w.plan.Items[c.item]
	if c.err != nil {
		return fmt.Errorf("%s: %w", it.Slot.Weight.Tensor, c.err)
	}
	if c.lo == 0 {
		if w.at != it.Offset {
			return fmt.Errorf("internal error: %s at %d, planned %d", it.Slot.Name, w.at, it.Offset)
		}
		w.span, w.alpha = sha256.New(), grow(w.alpha, int(it.Alpha))[:0]
		if it.Header > 0 {
			if err := w.put(mnn.AppendHeader(nil, it.Layout.Rows, it.Layout.Cols, it.Choice.Spec.Bits)); err != nil {
				return err
			}
		}
	}
	if err := w.put(c.codes); err != nil {
		return err
	}
	w.alpha = append(w.alpha, c.alpha...)
	codes.Put(&c.codes)
	if c.hi < it.Slot.Weight.Rows {
		w.progress()
		return nil
	}
	if err := w.put(w.alpha); err != nil {
		return err
	}
	if it.Bias > 0 {
		b, err := readFloats(w.src, it.BiasSource, it.Slot.Bias.Rows)
		if err != nil {
			return fmt.Errorf("%s: %w", it.Slot.Bias.Tensor, err)
		}
		if err := w.put(floatBytes(b)); err != nil {
			return err
		}
	}
	if w.at != it.Offset+it.Size() {
		return fmt.Errorf("internal error: %s ends at %d, planned %d", it.Slot.Name, w.at, it.Offset+it.Size())
	}
	w.progress()
	if w.opt.Done != nil {
		return w.opt.Done(c.item, hex.EncodeToString(w.span.Sum(nil)))
	}
	return nil
}

func (w *spanWriter) progress() {
	if w.opt.Progress != nil {
		w.opt.Progress(w.at)
	}
}

// codes recycles the buffers that travel from workers to the writer.
var codes = sync.Pool{New: func() any { return new([]byte) }}

func grow[T any](b []T, n int) []T {
	if cap(b) < n {
		return make([]T, n)
	}
	return b[:n]
}

// encoder is the state of one worker.
type encoder struct {
	plan   *Plan
	src    tensor.Source
	encode quant.Encoder
	raw    []byte
	rows   []float32
	blocks quant.Blocks
}

func (e *encoder) run(c *chunk) error {
	it := &e.plan.Items[c.item]
	cols := max(it.Slot.Weight.Cols, 1)
	n := (c.hi - c.lo) * cols
	r, err := e.src.Open(it.Source.Name)
	if err != nil {
		return err
	}
	size := it.Source.DType.Size()
	e.raw, e.rows = grow(e.raw, n*int(size)), grow(e.rows, n)
	if n, err := r.ReadAt(e.raw, int64(c.lo)*int64(cols)*size); n < len(e.raw) { // a full read may say io.EOF
		return fmt.Errorf("row %d: %w", c.lo, noEOF(err))
	}
	if err := kernel.ToF32(e.rows, e.raw, it.Source.DType); err != nil {
		return err
	}
	c.codes = *codes.Get().(*[]byte)
	sp := it.Choice.Spec
	switch {
	case it.Slot.Kind == lower.NormSlot:
		if err := allFinite(e.rows, math.MaxFloat32); err != nil {
			return err
		}
		c.codes = floatBytes(e.rows)
		return nil
	case sp.Bits == 16:
		if err := allFinite(e.rows, 65504); err != nil {
			return fmt.Errorf("rows %d to %d: %w", c.lo, c.hi-1, err)
		}
		c.codes = grow(c.codes, 2*n)
		for i, v := range e.rows {
			binary.LittleEndian.PutUint16(c.codes[2*i:], kernel.F16Bits(v))
		}
		return nil
	}
	blocks := (c.hi - c.lo) * it.Layout.Blocks
	e.blocks.Codes, e.blocks.Scale = grow(e.blocks.Codes, n), grow(e.blocks.Scale, blocks)
	e.blocks.Zero = grow(e.blocks.Zero, blocks)
	if err := e.encode.Encode(e.blocks, quant.Matrix{Rows: c.hi - c.lo, Cols: cols, Data: e.rows}, sp, nil); err != nil {
		return fmt.Errorf("rows %d to %d: %w", c.lo, c.hi-1, err)
	}
	c.codes = grow(c.codes, n*sp.Bits/8)
	quant.Pack(c.codes, e.blocks.Codes, sp.Bits)
	c.alpha = make([]byte, int64(c.hi-c.lo)*it.Alpha/int64(it.Layout.Rows))
	quant.PackAlpha(c.alpha, e.blocks, sp)
	return nil
}

func allFinite(x []float32, limit float32) error {
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
	if n, err := r.ReadAt(raw, 0); n < len(raw) {
		return nil, noEOF(err)
	}
	v := make([]float32, n)
	if err := kernel.ToF32(v, raw, info.DType); err != nil {
		return nil, err
	}
	return v, allFinite(v, math.MaxFloat32)
}

// noEOF turns the end of a file into what it means here.
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
