package forward

import (
	"context"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// Insertion is a window in which rows of a tower or an ear take the place of tokens.
type Insertion struct {
	Window []int32
	// Pad is the token in place of which rows are put.
	Pad int32
	// Rows are [n, Hidden], in order; each row of a model whose Deep is not 0 is followed by what is added to it after the first layers.
	Rows []float32
	// Grids are the heights and widths of the pictures, in rows, for a model whose positions have several axes.
	Grids [][2]int
}

// Insert puts the rows in place of states h [tokens, Width] before the first layer, and returns what is to be added to the states after
// the first layers, [tokens, Hidden] each.
func (m *Model) Insert(ctx context.Context, h []float32, in *Insertion) (deep [][]float32, err error) {
	width, rows := m.decoder.Hidden, in.Rows
	deep = make([][]float32, m.decoder.Deep)
	for i := range deep {
		deep[i] = make([]float32, len(in.Window)*width)
	}
	tokens := slices.Clone(in.Window)
	for i, token := range in.Window {
		if token != in.Pad || len(rows) < (1+len(deep))*width {
			continue
		}
		if p := m.decoder.PerLayer; p != nil {
			tokens[i] = int32(p.Pad)
		}
		at := h[i*m.decoder.Width():][:width]
		rows = rows[copy(at, rows):]
		if s := m.decoder.EmbeddingScale; s != 0 {
			kernel.Scale(at, at, float32(s))
		}
		for _, x := range deep {
			rows = rows[copy(x[i*width:(i+1)*width], rows):]
		}
	}
	if m.decoder.PerLayer != nil {
		err = m.perLayer(ctx, h, tokens)
	}
	return deep, err
}

// Windows describes the window of an insertion. It does not read the rows.
func (m *Model) Windows(in *Insertion) Windows {
	w := Equal(1, len(in.Window))
	if m.decoder.Marked() {
		w.Ends = ends(in.Window, in.Pad)
	}
	if in.Grids != nil && slices.ContainsFunc(m.decoder.Ropes, func(r *arch.Rope) bool { return r.Axes != nil }) {
		w.Places = places(in.Window, in.Pad, in.Grids)
	}
	return w
}

// ends are the last tokens of the runs of pad, for all others the token itself.
func ends(window []int32, pad int32) []int {
	out := make([]int, len(window))
	for i := len(window) - 1; i >= 0; i-- {
		out[i] = i
		if window[i] == pad && i+1 < len(window) && window[i+1] == pad {
			out[i] = out[i+1]
		}
	}
	return out
}

// places are the positions of a window with pictures on three axes. Text counts up on all of them. A picture stays where it begins on the
// first one, and its rows and columns count from there on the others; after it, counting goes on above its largest position.
func places(window []int32, pad int32, grids [][2]int) [][]int {
	out := make([][]int, 3)
	put := func(t, row, column int) {
		out[0], out[1], out[2] = append(out[0], t), append(out[1], row), append(out[2], column)
	}
	next := 0
	for i := 0; i < len(window); i++ {
		if window[i] != pad || len(grids) == 0 {
			put(next, next, next)
			next++
			continue
		}
		height, width := grids[0][0], grids[0][1]
		grids = grids[1:]
		for k := range height * width {
			put(next, next+k/width, next+k%width)
		}
		i += height*width - 1
		next += max(height, width)
	}
	return out
}
