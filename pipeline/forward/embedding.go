package forward

import (
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

// LoadTable reads the lookup table for tokens as a linear layer [Vocab, Hidden] without a bias.
func (m *Model) LoadTable() (*Linear, error) {
	return m.loadLinear(&arch.Linear{Weight: m.decoder.Embedding})
}

// States returns the states of windows before the first layer, [tokens, Hidden].
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
	if e.Norm != nil {
		e.Norm.apply(h, h)
	}
	m.scaleAll(h, d.EmbeddingScale)
	if d.Positions.Tensor == "" {
		return h, nil
	}
	table, err := m.open(d.Positions)
	if err != nil {
		return nil, err
	}
	return h, m.each(ctx, len(tokens), func(i int, b *buffer) error {
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

// Backward turns dh [tokens, Hidden], the gradient of the result of [Embedding.States] for windows, into that of the looked-up
// rows, in place: the gradient of row t of the table is the sum over the occurrences of token t.
func (e *Embedding) Backward(ctx context.Context, dh []float32, windows [][]int32, v Visitor) error {
	e.model.scaleAll(dh, e.model.decoder.EmbeddingScale)
	if e.Norm == nil {
		return nil
	}
	for _, w := range windows {
		x, err := e.lookUp(ctx, w)
		if err != nil {
			return err
		}
		e.Norm.back(x, dh[:len(x)], 1, v)
		dh = dh[len(x):]
	}
	return nil
}
