package forward

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Embedding computes states from tokens:
//
//	h = EmbeddingScale · Norm(Table[token]) + Positions[FirstPosition + position]
//	h = Norm(Table[token] + Segment + Positions[FirstPosition + position])             if NormLast
type Embedding struct {
	// Table is [Vocab, Hidden]; if nil, the rows that occur are read from the checkpoint.
	Table []float32
	Norm  *Norm // or nil

	model *Model
}

// Embedding reads the norm of looked-up rows.
func (m *Model) Embedding() (*Embedding, error) {
	e := &Embedding{model: m}
	var err error
	if n := m.decoder.EmbeddingNorm; n != nil {
		if e.Norm, err = m.readNorm(n, m.values); err != nil {
			return nil, fmt.Errorf("embedding norm: %w", err)
		}
	}
	return e, nil
}

// Table returns the lookup table for tokens as a linear layer [Vocab, Hidden] without a bias, whose weights are not read.
func (m *Model) Table() *Linear { return m.linearOf(&arch.Linear{Weight: m.decoder.Embedding}) }

// LoadTable is Table with the weights in memory.
func (m *Model) LoadTable() (*Linear, error) {
	l := m.Table()
	return l, l.Load()
}

// States returns the states of windows before the first layer, [tokens, Width].
func (e *Embedding) States(ctx context.Context, windows [][]int32) ([]float32, error) {
	d := e.model.decoder
	var positions []int
	for i, w := range windows {
		if d.MaxPositions > 0 && len(w) > d.MaxPositions {
			return nil, fmt.Errorf("window %d has %d tokens, the longest context of the checkpoint is %d: %w",
				i, len(w), d.MaxPositions, tensor.ErrUnsupported)
		}
		for pos, token := range w {
			if token < 0 || int(token) >= d.Vocab {
				return nil, fmt.Errorf("window %d: token %d is not in a vocabulary of %d", i, token, d.Vocab)
			}
			positions = append(positions, pos)
		}
	}
	return e.at(ctx, slices.Concat(windows...), positions)
}

// at returns the states of tokens at given positions of their windows.
func (e *Embedding) at(ctx context.Context, tokens []int32, positions []int) ([]float32, error) {
	m, d := e.model, e.model.decoder
	h, err := e.lookUp(ctx, tokens)
	if err != nil {
		return nil, err
	}
	if d.NormLast {
		if err := cmp.Or(e.addSegment(h), e.addPositions(ctx, h, positions)); err != nil {
			return nil, err
		}
		e.Norm.apply(h, h)
		return m.widened(ctx, h, tokens)
	}
	if e.Norm != nil {
		e.Norm.apply(h, h)
	}
	m.scaleAll(h, d.EmbeddingScale)
	if err := e.addPositions(ctx, h, positions); err != nil {
		return nil, err
	}
	return m.widened(ctx, h, tokens)
}

// addSegment adds the vector of the segment to all rows.
func (e *Embedding) addSegment(h []float32) error {
	w := e.model.decoder.Segment
	if w.Tensor == "" {
		return nil
	}
	v, err := e.model.vector(w)
	for ; err == nil && len(h) > 0; h = h[len(v):] {
		kernel.Add(h[:len(v)], h[:len(v)], v)
	}
	return err
}

// addPositions adds the vectors of the positions.
func (e *Embedding) addPositions(ctx context.Context, h []float32, positions []int) error {
	m, d := e.model, e.model.decoder
	if d.Positions.Tensor == "" {
		return nil
	}
	table, err := m.open(d.Positions)
	if err != nil {
		return err
	}
	return m.each(ctx, len(positions), func(i int, b *buffer) error {
		row := grow(&b.f32, d.Hidden)
		if err := table.rows(row, d.FirstPosition+positions[i], b); err != nil {
			return err
		}
		at := h[i*d.Hidden:][:d.Hidden]
		kernel.Add(at, at, row)
		return nil
	})
}

// lookUp gathers the rows of tokens.
func (e *Embedding) lookUp(ctx context.Context, tokens []int32) ([]float32, error) {
	width := e.model.decoder.Hidden
	h := make([]float32, len(tokens)*width)
	if e.Table != nil {
		for i, token := range tokens {
			copy(h[i*width:(i+1)*width], e.Table[int(token)*width:])
		}
		return h, nil
	}
	table, err := e.model.open(e.model.decoder.Embedding)
	if err != nil {
		return nil, err
	}
	return h, e.model.each(ctx, len(tokens), func(i int, b *buffer) error {
		return table.rows(h[i*width:(i+1)*width], int(tokens[i]), b)
	})
}

// Backward returns the gradient of the looked-up rows, [tokens, Hidden], for wide [tokens, Width], the gradient of the result of
// [Embedding.States] for windows, which it may change: the gradient of row t of the table is the sum over the occurrences of token t.
func (e *Embedding) Backward(ctx context.Context, wide []float32, windows [][]int32, v Visitor) ([]float32, error) {
	m := e.model
	all := m.Stream(wide)
	if m.decoder.PerLayer != nil {
		h, err := e.States(ctx, windows)
		if err == nil {
			err = m.perLayerBack(ctx, all, m.Stream(h), wide)
		}
		if err != nil {
			return nil, err
		}
	}
	m.scaleAll(all, m.decoder.EmbeddingScale)
	if e.Norm == nil {
		return all, nil
	}
	dh := all
	for _, w := range windows {
		x, err := e.lookUp(ctx, w)
		if err == nil && e.model.decoder.NormLast {
			positions := make([]int, len(w))
			for i := range positions {
				positions[i] = i
			}
			err = cmp.Or(e.addSegment(x), e.addPositions(ctx, x, positions))
		}
		if err != nil {
			return nil, err
		}
		e.Norm.back(x, dh[:len(x)], 1, v)
		dh = dh[len(x):]
	}
	return all, nil
}
