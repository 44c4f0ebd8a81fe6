package lower

import "github.com/llmexport/llmexport/runtime/mnn"

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
