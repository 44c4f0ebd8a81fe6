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
	// Ahead is the number of bytes of the file that may wait in memory between Begin and Finish, beyond Memory.
	Ahead int64
	// From is the first item to write; the bytes of the items before it are already in the file.
	From int
	// File is the running hash of the file, fed with the bytes before From; nil starts a new one.
	File hash.Hash
	// Done is called after each item with the hex SHA-256 of its span, once its bytes are written.
	Done func(item int, sum string) error
	// Progress, if set, is told the bytes written so far of p.Bytes.
	Progress func(done int64)
}

// chunkElements is the number of weights that travel from the source to the file together: large enough to make the
// hand-over cheap, small enough that few of them keep every stage busy.
const chunkElements = 1 << 18

// pieceElements is the number of weights that are widened and encoded at a time: their floats stay in a cache.
const pieceElements = 1 << 14

// chunkBytes is what a chunk needs at most: source (8), codes (2), scales.
const chunkBytes = chunkElements * 11

// chunk is a run of rows of one item on its way from the source to the file.
type chunk struct {
	item   int
	lo, hi int
	// buf holds the encoded rows: codes, then alpha. It and err are valid when done is closed.
	buf, codes, alpha []byte
	err               error
	done              chan struct{}

	// head and tail are what the file has before and behind the codes; sum is the digest of the item behind its last
	// chunk.
	head, tail []byte
	sum        string
}

// Write streams the plan's items from src to dst in order. The bytes do not depend on Threads or Memory. It
// returns the hex SHA-256 of the whole file. Weights that are NaN or infinite are tensor.ErrCorrupt.
func (p *Plan) Write(ctx context.Context, dst io.Writer, src tensor.Source, o WriteOptions) (string, error) {
	return p.Begin(ctx, src, o).Finish(dst, o.Done, o.Progress)
}

// Writing is a weight file of which the first chunks are being encoded. Chunks pass through workers, the digests of
// items, the digest of the file and the file itself, each at work on another chunk.
type Writing struct {
	plan   *Plan
	from   int
	ctx    context.Context
	group  *errgroup.Group
	places chan struct{}
	hashed chan *chunk
	file   hash.Hash
}

// Begin starts to encode, up to o.Ahead bytes of the file; Finish must follow, or an end of ctx and Wait.
func (p *Plan) Begin(ctx context.Context, src tensor.Source, o WriteOptions) *Writing {
	file := o.File
	if file == nil {
		file = sha256.New()
	}
	threads := max(o.Threads, 1)
	window := max(2, min(int(o.Memory/chunkBytes), 4*threads+4))
	window = max(window, p.chunks(o.From, o.Ahead))
	g, ctx := errgroup.WithContext(ctx)
	// There are never more chunks than places in a channel: only the one for a place waits.
	places := make(chan struct{}, window)
	work, order, spanned, hashed := make(chan *chunk, window), make(chan *chunk, window), make(chan *chunk, window), make(chan *chunk, window)
	g.Go(func() error {
		defer close(work)
		defer close(order)
		return p.cut(ctx, o.From, places, work, order)
	})
	for range min(threads, window) {
		g.Go(func() error {
			e := &encoder{plan: p, src: src, encode: o.Encoder}
			for c := range work {
				if ctx.Err() == nil {
					c.err = e.run(c)
				}
				close(c.done)
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(spanned)
		s := &spanner{plan: p, src: src}
		return pass(ctx, order, spanned, func(c *chunk) error {
			<-c.done
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return s.chunk(c)
		})
	})
	g.Go(func() error {
		defer close(hashed)
		return pass(ctx, spanned, hashed, func(c *chunk) error {
			for _, b := range [][]byte{c.head, c.codes, c.tail} {
				file.Write(b)
			}
			return nil
		})
	})
	return &Writing{plan: p, from: o.From, ctx: ctx, group: g, places: places, hashed: hashed, file: file}
}

// Finish writes the file to dst, as Write does; done and progress are those of WriteOptions.
func (w *Writing) Finish(dst io.Writer, done func(item int, sum string) error, progress func(done int64)) (string, error) {
	w.group.Go(func() error {
		out := &writer{plan: w.plan, dst: dst, done: done, progress: progress, at: w.plan.offset(w.from)}
		err := pass(w.ctx, w.hashed, nil, func(c *chunk) error {
			defer func() { <-w.places }()
			return out.chunk(c)
		})
		if err == nil && out.at != w.plan.Bytes {
			err = fmt.Errorf("internal error: wrote %d of %d bytes", out.at, w.plan.Bytes)
		}
		return err
	})
	if err := w.group.Wait(); err != nil {
		return "", err
	}
	return hex.EncodeToString(w.file.Sum(nil)), nil
}

// Wait returns when nothing is at work any more: after the end of the context that Begin got.
func (w *Writing) Wait() { _ = w.group.Wait() }

// chunks counts the chunks of the first n bytes from an item on.
func (p *Plan) chunks(from int, n int64) int {
	count := 0
	for i := from; i < len(p.Items) && p.Items[i].Offset-p.Items[from].Offset < n; i++ {
		it := &p.Items[i]
		part := min(1, float64(n-(it.Offset-p.Items[from].Offset))/float64(it.Size()))
		count += int(part * float64(ceil(it.Slot.Weight.Rows, it.step())))
	}
	return count
}

// step is the number of rows of a chunk.
func (it *Item) step() int {
	if it.Slot.Kind == lower.NormSlot {
		return it.Slot.Weight.Rows
	}
	return max(1, chunkElements/it.Slot.Weight.Cols)
}

// pass applies a stage to each chunk, in order, and hands it on.
func pass(ctx context.Context, from <-chan *chunk, to chan<- *chunk, stage func(*chunk) error) error {
	for c := range from {
		if ctx.Err() != nil {
			break
		}
		if err := stage(c); err != nil {
			return err
		}
		if to != nil {
			to <- c
		}
	}
	return context.Cause(ctx)
}

func (p *Plan) offset(item int) int64 {
	if item == len(p.Items) {
		return p.Bytes
	}
	return p.Items[item].Offset
}

// cut hands out the rows of every item, to the workers and, in the same order, to the stages behind them.
func (p *Plan) cut(ctx context.Context, from int, places chan<- struct{}, work, order chan<- *chunk) error {
	for i := from; i < len(p.Items); i++ {
		w, step := p.Items[i].Slot.Weight, p.Items[i].step()
		for lo := 0; lo < w.Rows; lo += step {
			c := &chunk{item: i, lo: lo, hi: min(lo+step, w.Rows), done: make(chan struct{})}
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			order <- c
			work <- c
		}
	}
	return nil
}

// spanner puts spans together from finished chunks: header, codes, scales, bias.
type spanner struct {
	plan *Plan
	src  tensor.Source

	at    int64 // in the span
	span  hash.Hash
	alpha []byte // scales of the item so far; they follow the codes
}

func (s *spanner) chunk(c *chunk) error {
	it := &s.plan.Items[c.item]
	if c.err != nil {
		return fmt.Errorf("%s: %w", it.Slot.Weight.Tensor, c.err)
	}
	if c.lo == 0 {
		s.at, s.span, s.alpha = 0, sha256.New(), grow(*alphas.Get().(*[]byte), int(it.Alpha+it.Bias))[:0]
		if it.Header > 0 {
			c.head = mnn.AppendHeader(nil, it.Layout.Rows, it.Layout.Cols, it.Choice.Spec.Bits)
		}
	}
	s.alpha = append(s.alpha, c.alpha...)
	last := c.hi == it.Slot.Weight.Rows
	if last {
		c.tail = s.alpha
		if it.Bias > 0 {
			b, err := readFloats(s.src, it.BiasSource, it.Slot.Bias.Rows)
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
		c.sum = hex.EncodeToString(s.span.Sum(nil))
	}
	return nil
}

// writer writes chunks to the file and tells of them.
type writer struct {
	plan     *Plan
	dst      io.Writer
	done     func(item int, sum string) error
	progress func(done int64)
	at       int64
}

func (w *writer) chunk(c *chunk) error {
	if it := &w.plan.Items[c.item]; c.lo == 0 && w.at != it.Offset {
		return fmt.Errorf("internal error: %s at %d, planned %d", it.Slot.Name, w.at, it.Offset)
	}
	for _, b := range [][]byte{c.head, c.codes, c.tail} {
		if len(b) == 0 {
			continue
		}
		n, err := w.dst.Write(b)
		w.at += int64(n)
		if err != nil {
			return err
		}
	}
	buf, tail := c.buf, c.tail // copies: the pools must not keep the chunk
	bufs.Put(&buf)
	if c.sum != "" {
		alphas.Put(&tail)
	}
	if w.progress != nil {
		w.progress(w.at)
	}
	if c.sum != "" && w.done != nil {
		return w.done(c.item, c.sum)
	}
	return nil
}

// bufs and alphas recycle what travels from workers to the file: rows of chunks, and the scales of whole items, which
// may be much larger.
var bufs, alphas = sync.Pool{New: newBuffer}, sync.Pool{New: newBuffer}

func newBuffer() any { return new([]byte) }

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
	size := int(it.Source.DType.Size())
	r, err := e.src.Open(it.Source.Name)
	if err != nil {
		return err
	}
	e.raw = grow(e.raw, (c.hi-c.lo)*cols*size)
	if n, err := r.ReadAt(e.raw, int64(c.lo)*int64(cols)*int64(size)); n < len(e.raw) { // a full read may say io.EOF
		return fmt.Errorf("row %d: %w", c.lo, noEOF(err))
	}
	rows := int64(c.hi - c.lo)
	codes, alpha := it.Codes/int64(it.Slot.Weight.Rows), it.Alpha/int64(it.Slot.Weight.Rows) // bytes of a row
	c.buf = grow(*bufs.Get().(*[]byte), int(rows*(codes+alpha)))
	c.codes, c.alpha = c.buf[:rows*codes], c.buf[rows*codes:]
	step := max(1, pieceElements/cols)
	for lo := c.lo; lo < c.hi; lo += step {
		hi := min(lo+step, c.hi)
		from, to := int64(lo-c.lo), int64(hi-c.lo)
		e.rows = grow(e.rows, (hi-lo)*cols)
		if err := kernel.ToF32(e.rows, e.raw[int(from)*cols*size:int(to)*cols*size], it.Source.DType); err != nil {
			return err
		}
		if err := e.piece(c.codes[from*codes:to*codes], c.alpha[from*alpha:to*alpha], it, hi-lo); err != nil {
			if it.Slot.Kind == lower.NormSlot {
				return err
			}
			return fmt.Errorf("rows %d to %d: %w", lo, hi-1, err)
		}
	}
	return nil
}

// piece encodes whole rows.
func (e *encoder) piece(codes, alpha []byte, it *Item, rows int) error {
	sp := it.Choice.Spec
	switch {
	case it.Slot.Kind == lower.NormSlot:
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
	if err := e.encode.Encode(e.blocks, quant.Matrix{Rows: rows, Cols: it.Layout.Cols, Data: e.rows}, sp, nil); err != nil {
		return err
	}
	quant.Pack(codes, e.blocks.Codes, sp.Bits)
	quant.PackAlpha(alpha, e.blocks, sp)
	return nil
}

// allFinite says which weight is not a number from -limit to limit.
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
