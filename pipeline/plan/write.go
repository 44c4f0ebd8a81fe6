package plan

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// WriteOptions configures Write.
type WriteOptions struct {
	// Quantizer chooses the codes of matrices that Encoded lacks. It must not need calibration.
	Quantizer quant.Quantizer
	// Encoded, if set, opens codes of a checkpoint's matrix that were chosen before, followed by their scales as they lie
	// in the file; it returns nil for a matrix that it lacks.
	Encoded func(tensor string) io.ReaderAt
	// Threads that encode, at least 1.
	Threads int
	// Memory bounds the buffers, in bytes; the number of chunks in flight follows from it.
	Memory int64
	// Ahead is the number of bytes of the file that may wait in memory between Begin and Finish, in addition to Memory.
	Ahead int64
	// From is the first item to write; the bytes of the items before it are already in the file.
	From int
	// Items, if not nil, are the only ones to write, in ascending order. They go to their places in a file that Finish can
	// seek in (io.Seeker). The file gets no digest; From and File are not used.
	Items []int
	// Compare, if set, is called with adjacent rows of an item, as they are stored and as they are in the source. It returns
	// the largest error as a share of its bound; more than 1 is out of bounds. All threads call it.
	Compare func(it *Item, codes, alpha []byte, rows []float32) (share float64, err error)
	// Compared is called with the largest share of the whole item, before Done. It must be set if Compare is.
	Compared func(item int, share float64)
	// File is the running hash of the file, to which the bytes before From were written; nil starts a new one.
	File hash.Hash
	// Done is called after each item with the hex SHA-256 of its span, once its bytes are written.
	Done func(item int, sum string) error
	// Progress, if set, is called with the number of bytes written so far, out of Part.Bytes.
	Progress func(done int64)
}

// chunkElements is the number of weights that travel from the source to the file together: large enough to make handing
// over cheap, small enough that a few chunks keep every stage busy.
const chunkElements = 1 << 18

// pieceElements is the number of weights that are widened and encoded at a time, so that their floats stay in a cache.
const pieceElements = 1 << 14

// chunkBytes is the most that a chunk needs: source (8), codes (2), scales.
const chunkBytes = chunkElements * 11

// LeastMemory is the memory that writing takes however small the limit is, in bytes: two chunks in flight.
const LeastMemory = 2 * chunkBytes

// chunk is a run of rows of one item on its way from the source to the file.
type chunk struct {
	item   int
	lo, hi int
	// buf holds the encoded rows: codes, then alpha. It and err are valid when done is closed.
	buf, codes, alpha []byte
	err               error
	done              chan struct{}

	// head and tail are the bytes of the file before and after the codes; sum is the digest of the item, set on its last
	// chunk.
	head, tail []byte
	sum        string

	share float64 // of the rows; of the whole item on its last chunk
}

// Write streams the items of the part from src to dst in order. The bytes do not depend on Threads or Memory. It
// returns the hex SHA-256 of the whole file. Weights that are NaN or infinite are tensor.ErrCorrupt.
func (p *Part) Write(ctx context.Context, dst io.Writer, src tensor.Source, o WriteOptions) (string, error) {
	return p.Begin(ctx, src, o).Finish(dst, o.Done, o.Progress)
}

// Writing is a weight file whose first chunks are being encoded. Chunks pass through the workers, the digests of items, the
// digest of the file and the file itself, each of which works on another chunk.
type Writing struct {
	part     *Part
	from     int
	apart    bool // items do not follow each other
	compared func(item int, share float64)
	ctx      context.Context
	group    *errgroup.Group
	places   chan struct{}
	hashed   chan *chunk
	file     hash.Hash // nil if apart
}

// Begin starts to encode, up to o.Ahead bytes of the file. The caller must call Finish, or end ctx and call Wait.
func (p *Part) Begin(ctx context.Context, src tensor.Source, o WriteOptions) *Writing {
	items := o.Items
	file := o.File
	if items == nil {
		for i := o.From; i < len(p.Items); i++ {
			items = append(items, i)
		}
		if file == nil {
			file = digest.New()
		}
	}
	threads := max(o.Threads, 1)
	window := max(2, min(int(o.Memory/chunkBytes), 4*threads+4))
	window = max(window, p.chunks(o.From, o.Ahead))
	g, ctx := errgroup.WithContext(ctx)
	// No channel ever holds more chunks than it has room for: only taking a place blocks.
	places := make(chan struct{}, window)
	work, order, spanned, hashed := make(chan *chunk, window), make(chan *chunk, window), make(chan *chunk, window), make(chan *chunk, window)
	g.Go(func() error {
		defer close(work)
		defer close(order)
		return p.cut(ctx, items, places, work, order)
	})
	for range min(threads, window) {
		g.Go(func() error {
			e := &encoder{part: p, src: src, quantizer: o.Quantizer, encoded: o.Encoded, compare: o.Compare}
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
		s := &spanner{part: p, src: src}
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
			if o.Items != nil {
				return nil
			}
			for _, b := range [][]byte{c.head, c.codes, c.tail} {
				file.Write(b)
			}
			return nil
		})
	})
	return &Writing{part: p, from: o.From, apart: o.Items != nil, compared: o.Compared, ctx: ctx, group: g, places: places, hashed: hashed, file: file}
}

// Finish writes the file to dst, as Write does; done and progress are those of WriteOptions. With WriteOptions.Items the
// digest is empty and progress counts the bytes of this call.
func (w *Writing) Finish(dst io.Writer, done func(item int, sum string) error, progress func(done int64)) (string, error) {
	out := &writer{part: w.part, dst: dst, compared: w.compared, done: done, progress: progress, at: w.part.offset(w.from)}
	if w.apart {
		out.at, out.seeker = 0, dst.(io.Seeker)
	}
	out.written = out.at
	w.group.Go(func() error {
		return pass(w.ctx, w.hashed, nil, func(c *chunk) error {
			defer func() { <-w.places }()
			return out.chunk(c)
		})
	})
	if err := w.group.Wait(); err != nil {
		return "", err
	}
	if w.apart {
		return "", nil
	}
	if out.at != w.part.Bytes { // a stage that fails ends the chunks before the group knows its error
		return "", fmt.Errorf("internal error: wrote %d of %d bytes", out.at, w.part.Bytes)
	}
	return hex.EncodeToString(w.file.Sum(nil)), nil
}

// Wait returns when all work has stopped, after the end of Begin's context.
func (w *Writing) Wait() { _ = w.group.Wait() }

// chunks counts the chunks of the first n bytes from an item on.
func (p *Part) chunks(from int, n int64) int {
	count := 0
	for i := from; i < len(p.Items) && p.Items[i].Offset-p.Items[from].Offset < n; i++ {
		it := &p.Items[i]
		part := min(1, float64(n-(it.Offset-p.Items[from].Offset))/float64(it.Size()))
		count += int(part * float64(ceil(it.Slot.Weight.Rows, it.step())))
	}
	return count
}

// step returns the number of rows of a chunk.
func (it *Item) step() int {
	if it.Slot.Weight.Cols == 0 {
		return it.Slot.Weight.Rows
	}
	return max(1, chunkElements/it.Slot.Weight.Cols)
}

// pass applies a stage to each chunk, in order, and sends the chunk to the next one.
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

func (p *Part) offset(item int) int64 {
	if item == len(p.Items) {
		return p.Bytes
	}
	return p.Items[item].Offset
}

// cut sends the rows of items to the workers and, in the same order, to the stages after them.
func (p *Part) cut(ctx context.Context, items []int, places chan<- struct{}, work, order chan<- *chunk) error {
	for _, i := range items {
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
