package calibrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Rotate returns a model that computes the same as the decoder in rotated coordinates. With Q the rotation of the residual
// stream and R that of the values of a head,
//
//	norms       gamma moves into the columns of the matrices after them and becomes 1
//	embedding   E Q
//	readers     W Q              q, k, v and their gate, gate, up, router, all other matrices after a norm before a block, head
//	writers     Qᵀ W, Qᵀ b       o, down, out
//	values      Rᵀ W, Rᵀ b       v, for every key-value head
//	            W R              o, for every query head
//
// Rotated matrices are written to dir, as files of F32 that the overlay reads, computed in float64 and rounded once; a few
// blocks of one tensor are in memory at a time. A decoder that cannot be rotated is rejected, see [CheckRotation].
func Rotate(ctx context.Context, d *arch.Decoder, src tensor.Source, by quant.Rotator, dir string, threads int) (*Overlay, error) {
	if err := CheckRotation(d, by); err != nil {
		return nil, err
	}
	r := &rotation{o: NewOverlay(src), dir: dir, threads: threads, elements: 1 << 23}
	stream := by.Stream(d.Hidden)
	if stream != nil {
		for _, s := range Sites(d) {
			if !s.Stream {
				continue
			}
			if err := r.absorb(&s); err != nil {
				return nil, err
			}
		}
		if err := r.turn(ctx, d.Embedding, nil, stream); err != nil {
			return nil, err
		}
		if err := r.turn(ctx, d.Head.Weight, nil, stream); err != nil {
			return nil, err
		}
	}
	for _, l := range d.Layers {
		for _, b := range l {
			for _, t := range turns(b.Block, by, stream) {
				if t.linear.Weight.Tensor == "" {
					continue
				}
				if err := r.turn(ctx, t.linear.Weight, t.out, t.in); err != nil {
					return nil, err
				}
				if err := r.turnBias(t.linear.Bias, t.out); err != nil {
					return nil, err
				}
			}
		}
	}
	return r.o, nil
}

// turn describes how a linear layer is rotated: its outputs by out, its inputs by in.
type turn struct {
	linear  *arch.Linear
	out, in *quant.Hadamard
}

// turns lists the rotations of a block: of the layers that read its input, that write its output, and of values.
func turns(block arch.Block, by quant.Rotator, stream *quant.Hadamard) (all []turn) {
	var value *arch.Linear
	var head *quant.Hadamard
	switch x := block.(type) {
	case *arch.Attention:
		value, head = &x.V, by.Head(x.HeadDim)
	case *arch.LatentAttention:
		value, head = &x.V, by.Head(x.ValueDim)
	}
	reads := readers(block)
	for _, l := range reads {
		t := turn{linear: l, in: stream}
		if l == value {
			t.out = head
		}
		all = append(all, t)
	}
	if value != nil && !slices.Contains(reads, value) {
		all = append(all, turn{linear: value, out: head})
	}
	for _, l := range writers(block) {
		all = append(all, turn{linear: l, out: stream, in: head})
	}
	return all
}

// writers are the linear layers that compute the output of a block.
func writers(b arch.Block) (all []*arch.Linear) {
	switch x := b.(type) {
	case *arch.Attention:
		return []*arch.Linear{&x.O}
	case *arch.LatentAttention:
		return []*arch.Linear{&x.O}
	case *arch.MLP:
		return []*arch.Linear{&x.Down}
	case *arch.DeltaNet:
		return []*arch.Linear{&x.Out}
	case *arch.Mamba2:
		return []*arch.Linear{&x.Out}
	case *arch.Injection:
		return []*arch.Linear{&x.Out}
	case *arch.ShortConv:
		return []*arch.Linear{&x.Out}
	case *arch.Experts:
		for i := range x.Experts {
			all = append(all, &x.Experts[i].Down)
		}
		if x.Shared != nil {
			all = append(all, &x.Shared.Down)
		}
	}
	return all
}

// CheckRotation rejects, with tensor.ErrUnsupported, a decoder that would compute something else in rotated coordinates. The
// residual stream can be rotated if its only readers are RMSNorms, each followed by matrices of its own or shared by parallel
// branches, and if only matrices add to it. So the head cannot share the embedding table: the gamma of the final norm applies only to
// the head. The values of a head can be rotated if only o reads them.
func CheckRotation(d *arch.Decoder, by quant.Rotator) error {
	if d.Tied || d.Head.Weight.Tensor == d.Embedding.Tensor {
		return fmt.Errorf("%s: head and embedding share the table %s, which cannot hold the final norm's gamma for one of them only: %w",
			by.Name(), d.Embedding.Tensor, tensor.ErrUnsupported)
	}
	refuse := func(what string) error { return fmt.Errorf("%s: %s: %w", by.Name(), what, tensor.ErrUnsupported) }
	absorbed := map[string]bool{} // gammas
	for _, s := range Sites(d) {
		if s.Stream {
			absorbed[s.Producers[0].Tensor] = true
		}
	}
	reads := func(n *arch.Norm) string {
		switch {
		case n == nil:
			return "blocks without a norm before them"
		case n.Centered || n.Beta.Tensor != "":
			return "LayerNorm"
		case !absorbed[n.Gamma.Tensor]:
			return "norms that share their weights"
		}
		return ""
	}
	stream := by.Stream(d.Hidden) != nil
	if stream && d.EmbeddingNorm != nil {
		return refuse("normalised embeddings")
	}
	if stream && d.Inserted {
		return refuse("rows of pictures among those of tokens")
	}
	if stream && d.Positions.Tensor != "" {
		return refuse("learned positions")
	}
	if what := reads(&d.FinalNorm); stream && what != "" {
		return refuse(what)
	}
	for _, l := range d.Layers {
		for _, b := range l {
			if what := reads(b.Norm); stream && what != "" {
				return refuse(what)
			}
			if stream && b.PostNorm != nil {
				return refuse("norms after the blocks")
			}
			if stream && b.Factors.Tensor != "" {
				return refuse("factors after the blocks")
			}
			a, ok := b.Block.(*arch.Attention)
			if !ok || by.Head(a.HeadDim) == nil {
				continue
			}
			switch {
			case a.Gate.Weight.Tensor != "" || a.OutNorm != nil:
				return refuse("attention with a gate or a norm before its output")
			case a.Clip != 0:
				return refuse("clipped values")
			case a.VNorm != nil || a.V.Weight.Tensor == "":
				return refuse("values that are keys or have a norm")
			}
		}
	}
	return nil
}

// rotation is the state of Rotate.
type rotation struct {
	o       *Overlay
	dir     string
	threads int
	files   int
	// elements bounds the block of a tensor in memory, unless a row or column is longer.
	elements int
}

// absorb moves the gamma of a norm into its consumers.
func (r *rotation) absorb(s *Site) error {
	g := s.Producers[0]
	gamma, err := r.vector(g)
	if err != nil {
		return err
	}
	for _, w := range s.Consumers {
		if err := r.o.ScaleColumns(w.Tensor, gamma); err != nil {
			return err
		}
	}
	for i := range gamma {
		gamma[i] = 1
	}
	return r.o.ReplaceValues(g.Tensor, gamma)
}

// vector reads a gamma or a bias.
func (r *rotation) vector(w arch.Weight) ([]float32, error) {
	t, err := open(r.o, w)
	if err != nil {
		return nil, err
	}
	x := make([]float32, w.Rows)
	return x, t.read(x, 0)
}

// turnBias rotates the bias of a linear layer whose outputs are rotated.
func (r *rotation) turnBias(w arch.Weight, out *quant.Hadamard) error {
	if w.Tensor == "" || out == nil {
		return nil
	}
	bias, err := r.vector(w)
	if err != nil {
		return err
	}
	apply(out, bias, make([]float64, len(bias)))
	return r.o.ReplaceValues(w.Tensor, bias)
}

// turn rotates the columns of a matrix by out, its rows by in, and either may be nil.
func (r *rotation) turn(ctx context.Context, w arch.Weight, out, in *quant.Hadamard) error {
	if out == nil && in == nil {
		return nil
	}
	t, err := open(r.o, w)
	if err != nil {
		return err
	}
	r.files++
	path := filepath.Join(r.dir, fmt.Sprintf("rotated-%d.f32", r.files))
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if in != nil {
		err = r.turnRows(ctx, f, t, w, in)
		// The second pass reads the output of the first.
		t = &weight{w.Tensor, tensor.F32, io.NewSectionReader(f, 0, 4*int64(w.Rows)*int64(w.Cols))}
	}
	if err == nil && out != nil {
		err = r.turnColumns(ctx, f, t, w, out)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return r.o.ReplaceFile(w.Tensor, path)
}

// turnRows writes W Q, block by block of rows.
func (r *rotation) turnRows(ctx context.Context, f *os.File, t *weight, w arch.Weight, by *quant.Hadamard) error {
	height := min(max(1, r.elements/w.Cols), w.Rows)
	block := make([]float32, height*w.Cols)
	var raw []byte
	for lo := 0; lo < w.Rows; lo += height {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		block := block[:min(height, w.Rows-lo)*w.Cols]
		first := int64(lo) * int64(w.Cols)
		if err := t.read(block, first); err != nil {
			return err
		}
		kernel.Parallel(r.threads, len(block)/w.Cols, func(from, to int) {
			x := make([]float64, w.Cols)
			for i := from; i < to; i++ {
				apply(by, block[i*w.Cols:(i+1)*w.Cols], x)
			}
		})
		raw = putFloats(raw[:0], block)
		if _, err := f.WriteAt(raw, 4*first); err != nil {
			return err
		}
	}
	return nil
}

// turnColumns writes Qᵀ W, panel by panel of columns. t may read from f: a panel is read whole before it is written.
func (r *rotation) turnColumns(ctx context.Context, f *os.File, t *weight, w arch.Weight, by *quant.Hadamard) error {
	width := min(max(1, r.elements/w.Rows), w.Cols)
	panel := make([]float32, w.Rows*width)
	var raw []byte
	for lo := 0; lo < w.Cols; lo += width {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := min(width, w.Cols-lo)
		at := func(row int) int64 { return int64(row)*int64(w.Cols) + int64(lo) }
		for row := range w.Rows {
			if err := t.read(panel[row*n:(row+1)*n], at(row)); err != nil {
				return err
			}
		}
		kernel.Parallel(r.threads, n, func(from, to int) {
			column, x := make([]float32, w.Rows), make([]float64, w.Rows)
			for c := from; c < to; c++ {
				for row := range column {
					column[row] = panel[row*n+c]
				}
				apply(by, column, x)
				for row, v := range column {
					panel[row*n+c] = v
				}
			}
		})
		for row := range w.Rows {
			raw = putFloats(raw[:0], panel[row*n:(row+1)*n])
			if _, err := f.WriteAt(raw, 4*at(row)); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply rotates x, using buffer, of the same length, as scratch.
func apply(by *quant.Hadamard, x []float32, buffer []float64) {
	for i, v := range x {
		buffer[i] = float64(v)
	}
	by.Apply(buffer)
	for i, v := range buffer {
		x[i] = float32(v)
	}
}
