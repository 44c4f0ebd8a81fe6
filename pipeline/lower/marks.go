package lower

import (
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// The engine tells the text model nothing about pictures. So rows are wider than its states, and those of a tower say in the first column
// after them how many rows of the same picture follow; rows of tokens have zeros there.

// marked appends these columns to rows of a tower [Rows, 1, width].
func (b *builder) marked(t *arch.Tower, x value) value {
	n := t.Rows()
	marks := make([]float32, n*t.Marks)
	for i := range n {
		marks[i*t.Marks] = float32(n - 1 - i)
	}
	return b.concat("/marked", 2, x, b.floats("/marks", marks, int32(n), 1, int32(t.Marks)))
}

// unmarked divides the rows of a call into marks and states before layer 0, [1, tokens, Hidden].
func (b *builder) unmarked(rows value) value {
	hidden := int32(b.decoder.Hidden)
	rows = b.reshape("/embedding/marked", rows, 1, -1, int32(b.decoder.Lookup.Cols))
	follow := b.reshape("/follow_float", b.slice("/marks", rows, b.list(hidden), hidden+1, 2), -1, 1)
	follow = b.op("/follow", mnn.OpCast, &mnn.Cast{From: mnn.DTFloat, To: mnn.DTInt32}, follow)
	b.follow, b.whole = &follow, true
	b.condition("a prompt in pieces would cut pictures, whose tokens attend to each other, so prompts must not be divided (chunk)")
	return b.slice("/embedding", rows, b.list(0), hidden, 2)
}

// means averages squares of adjacent rows of a tower.
func (b *builder) means(t *arch.Tower, x value) value {
	n, pool, hidden := int32(t.Side()/t.Pool), int32(t.Pool), int32(t.Hidden)
	x = b.reshape("/means/grid", x, n, pool, n, pool, hidden)
	x = b.permute("/means/squares", x, 0, 2, 1, 3, 4)
	x = b.reshape("/means/rows", x, n*n, pool*pool, hidden)
	x = b.op("/means/sum", mnn.OpReduction, &mnn.Reduction{Op: mnn.ReduceSum, Dims: []int32{1}, Keep: true, T: mnn.DTFloat}, x)
	return b.times("/means", b.reshape("/means/sums", x, 1, n*n, hidden), 1/float64(t.Pool*t.Pool))
}
