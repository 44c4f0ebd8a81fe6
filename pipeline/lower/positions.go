package lower

import (
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/runtime/mnn"
)

// learnedPositions returns the rows of the position table for the call's positions, [1, tokens, Hidden].
func (b *builder) learnedPositions() value {
	d := b.decoder
	const name = "/learned_positions"
	p := b.binary(name+"/clamp_low", mnn.BinaryMaximum, b.flatPositions(), b.scalar(0))
	p = b.binary(name+"/clamp_high", mnn.BinaryMinimum, p, b.scalar(int32(d.MaxPositions-1)))
	if d.FirstPosition != 0 {
		p = b.binary(name+"/row", mnn.BinaryAdd, p, b.scalar(int32(d.FirstPosition)))
	}
	rows := b.gather(name+"/rows", b.constant(name+"/table", d.Positions), p)
	return b.reshape(name, rows, 1, -1, int32(d.Hidden))
}

// quotient returns p/n, rounded down; p are integers from 0 to most, of any shape.
func (b *builder) quotient(name string, p value, n, most int) value {
	if !b.tabledQuotients {
		return b.binary(name, mnn.BinaryRealDiv, p, b.scalar(int32(n)))
	}
	at := "/quotients_" + strconv.Itoa(n) + "_" + strconv.Itoa(most)
	table := b.shares(at, func() value {
		var rows []int32
		for row := 0; len(rows) <= most; row++ {
			rows = append(rows, slices.Repeat([]int32{int32(row)}, min(n, most+1-len(rows)))...)
		}
		return b.op(at, mnn.OpConst, &mnn.Blob{Dims: []int32{int32(most + 1)}, Format: mnn.NCHW, DType: mnn.DTInt32, Int32s: rows})
	})
	return b.gather(name, table, p)
}
