package lower

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// ear lowers an encoder of sound to a graph from [1, Mels, frames] to [1, rows, width].
func ear(e *arch.Ear) (*Part, error) {
	switch {
	case e.Features == arch.USMFeatures:
		return universal(e)
	case e.Subsampling != nil:
		return conformer(e)
	}
	b := newBuilder()
	b.g.Outputs, b.tower = []string{mnn.SoundRows}, true
	width := int32(e.Hidden)
	features := b.input(mnn.FeaturesInput, mnn.DTFloat, 1, int32(e.Mels), -1)
	if e.Piece > 0 {
		b.input("attention_mask", mnn.DTFloat, 1, -1, -1) // for the branch of the engine that does not cut clips; it has windows of one size
	}
	frames := b.slice("/frames", b.op("/shape", mnn.OpShape, nil, features), b.list(2), 3, 0)
	half := func(name string, n value) value { return b.binary(name, mnn.BinaryRealDiv, n, b.list(2)) }
	states := half("/states", b.binary("/frames_and_one", mnn.BinaryAdd, frames, b.list(1)))
	x := b.permute("/each_frame", features, 0, 2, 1)
	if e.Piece > 0 {
		x = b.pieces(e, x, frames, states)
	} else {
		x = b.clip(e, x, frames, states)
	}
	x, err := b.earLayers(e, x)
	if err != nil {
		return nil, err
	}
	x = b.cut("/mean/pairs", x, b.binary("/mean/even", mnn.BinaryMul, half("/mean/rows", states), b.list(2)))
	x = b.reshape("/mean/pair", x, 1, -1, 2*width)
	sum := b.binary("/mean/sum", mnn.BinaryAdd, b.slice("/mean/first", x, b.list(0), width, 2), b.slice("/mean/second", x, b.list(width), sliceEnd, 2))
	x = b.norm("/post_norm", b.times("/mean", sum, 0.5), e.PostNorm)
	x = b.linear("/projector/Linear", x, &e.Out, Slot{}, 1, -1, int32(e.Out.Weight.Rows))
	b.g.Tensors[x] = mnn.SoundRows
	return &Part{Name: mnn.AudioPart, Graph: b.g, Slots: b.slots}, b.err
}

// clip returns the states of a clip before the layers, [1, states, Hidden]; x are its frames, [1, frames, Mels].
func (b *builder) clip(e *arch.Ear, x, frames, states value) value {
	width := int32(e.Hidden)
	x = b.linear("/conv1/Linear", b.windows("/conv1/", b.silent(e, x, frames), e.Mels, 1, -1), &e.First, Slot{Fine: true}, 1, -1, width)
	x = b.unary("/conv1/gelu", mnn.UnaryGeluStandard, x)
	none := b.zeros("/conv2/none", 1, 1, width)
	x = b.windows("/conv2/", b.concat("/conv2/padded", 1, none, x, none), e.Hidden, 1, -1)
	x = b.cut("/conv2/pairs", x, b.binary("/conv2/even", mnn.BinaryMul, states, b.list(2)))
	x = b.everyOther(e, x, 1, -1)
	positions := b.cut("/positions/used", b.constant("/positions", e.Positions, 1, int32(e.Frames/2), width), states)
	return b.binary("/with_positions", mnn.BinaryAdd, x, positions)
}

// pieces is clip for pieces. The last one is filled up with zeros, whose states no other one sees and the result leaves out. Attention takes
// the pieces as texts of equal length.
func (b *builder) pieces(e *arch.Ear, x, frames, states value) value {
	piece, mels, width := int32(e.Piece), int32(e.Mels), int32(e.Hidden)
	n := b.binary("/pieces/frames_and_more", mnn.BinaryAdd, frames, b.list(piece-1))
	n = b.binary("/pieces", mnn.BinaryRealDiv, n, b.list(piece))
	all := b.binary("/pieces/frames", mnn.BinaryMul, n, b.list(piece))
	x = b.cut("/pieces/cut", b.concat("/pieces/filled", 1, x, b.zeros("/none", 1, piece, mels)), all)
	x = b.around("/conv1/", b.reshape("/pieces/each", x, -1, piece, mels))
	x = b.linear("/conv1/Linear", b.windows("/conv1/", x, e.Mels, -1, piece), &e.First, Slot{Fine: true}, -1, piece, width)
	x = b.unary("/conv1/gelu", mnn.UnaryGeluStandard, x)
	there := b.reshape("/pieces/frames_there", b.below("/pieces/frame", all, frames), -1, piece, 1)
	x = b.around("/conv2/", b.binary("/conv1/there", mnn.BinaryMul, x, there))
	x = b.everyOther(e, b.windows("/conv2/", x, e.Hidden, -1, piece), -1, piece/2)
	x = b.binary("/with_positions", mnn.BinaryAdd, x, b.floats("/positions", e.Sinusoids(), 1, piece/2, width))

	length := b.list(piece / 2)
	there = b.below("/pieces/state", b.binary("/pieces/states", mnn.BinaryMul, n, length), states)
	padding := b.times("/pieces/hidden", b.binary("/pieces/states_missing", mnn.BinarySub, there, b.scalarFloat(1)), hidden)
	padding = b.reshape("/pieces/padding", padding, -1, 1, 1, piece/2)
	b.length, b.padding = &length, &padding
	return b.reshape("/pieces/rows", x, 1, -1, width)
}

// everyOther applies the second convolution to every other window of lead x 2*rows.
func (b *builder) everyOther(e *arch.Ear, x value, lead, rows int32) value {
	width := int32(e.Hidden)
	x = b.slice("/conv2/every_other", b.reshape("/conv2/pair", x, lead, rows, 6*width), b.list(0), 3*width, 2)
	x = b.linear("/conv2/Linear", x, &e.Second, Slot{Fine: true}, lead, rows, width)
	return b.unary("/conv2/gelu", mnn.UnaryGeluStandard, x)
}

// around puts a row of zeros before and after the rows of each piece.
func (b *builder) around(at string, x value) value {
	none := b.times(at+"none", b.slice(at+"first", x, b.list(0), 1, 1), 0)
	return b.concat(at+"padded", 1, none, x, none)
}

// below is 1 for each number below most, and 0 for others up to n, float [n].
func (b *builder) below(name string, n, most value) value {
	n = b.op(name+"/number", mnn.OpSqueeze, &mnn.Squeeze{Dims: []int32{0}}, n)
	each := b.op(name+"/each", mnn.OpRange, &mnn.Range{T: mnn.DTInt32}, b.scalar(0), n, b.scalar(1))
	left := b.binary(name+"/left", mnn.BinarySub, most, each)
	left = b.binary(name+"/some", mnn.BinaryMinimum, b.binary(name+"/positive", mnn.BinaryMaximum, left, b.list(0)), b.list(1))
	return b.toFloat(name+"/there", left)
}

// earLayers applies the layers of an encoder of sound.
func (b *builder) earLayers(e *arch.Ear, x value) (value, error) {
	var err error
	for i, l := range e.Layers {
		if x, err = b.layer(i, l, x); err != nil {
			return 0, fmt.Errorf("%s: layer %d: %w", mnn.AudioPart, i, err)
		}
	}
	return x, nil
}

// silent returns frames with one of zeros before them and two after them: of silence as long as there are less than Frames,
// then of zeros. The library's clips are that long, and a mask hides their end from the layers but not from convolutions. Silence is what
// the features of 0 become: 8 powers of ten below the largest, at least 1e-10, as (log10 + 4) / 4.
func (b *builder) silent(e *arch.Ear, x, frames value) value {
	mels := int32(e.Mels)
	most := b.op("/silence/largest", mnn.OpReduction, &mnn.Reduction{Op: mnn.ReduceMaximum, Dims: []int32{1, 2}, Keep: true, T: mnn.DTFloat}, x)
	silence := b.binary("/silence/below", mnn.BinarySub, most, b.scalarFloat(2))
	silence = b.binary("/silence/least", mnn.BinaryMaximum, silence, b.scalarFloat(-1.5))
	// 1 for each of the two frames that is not beyond Frames.
	left := b.binary("/silence/left", mnn.BinarySub, b.list(int32(e.Frames), int32(e.Frames-1)), frames)
	left = b.binary("/silence/there", mnn.BinaryMinimum, b.binary("/silence/positive", mnn.BinaryMaximum, left, b.list(0, 0)), b.list(1, 1))
	tail := b.binary("/silence/values", mnn.BinaryMul, b.reshape("/silence/rows", b.toFloat("/silence/factors", left), 1, 2, 1), silence)
	tail = b.binary("/silence", mnn.BinaryMul, tail, b.ones(1, 1, mels))
	return b.concat("/padded", 1, b.zeros("/none", 1, 1, mels), x, tail)
}

// windows puts three rows of width elements side by side, the elements of a channel next to each other, for every row but the first and
// the last: a convolution is then a linear layer. The result is [lead, rows, 3*width].
func (b *builder) windows(at string, x value, width int, lead, rows int32) value {
	part := func(name string, begin, end int32) value {
		return b.reshape(at+name+"_channels", b.slice(at+name, x, b.list(begin), end, 1), lead, rows, int32(width), 1)
	}
	three := b.concat(at+"three", 3, part("before", 0, -2), part("here", 1, -1), part("after", 2, sliceEnd))
	return b.reshape(at+"windows", three, lead, rows, int32(3*width))
}

// cut keeps the first rows of [1, rows, ...]; n is int32 [1].
func (b *builder) cut(name string, x, n value) value {
	return b.between(name, x, b.list(0), n, 1)
}

// zeros is a constant of zeros.
func (b *builder) zeros(name string, dims ...int32) value {
	n := 1
	for _, d := range dims {
		n *= int(d)
	}
	return b.floats(name, make([]float32, n), dims...)
}

// takesClips is a sentence about the clips that the engine takes.
const takesClips = "the engine takes clips at 16 kHz as they are; it converts others without a filter, and reads the first channel: convert clips before"

// wordsAround is a sentence about what a prompt has around a clip.
func wordsAround(e *arch.Ear) string {
	return fmt.Sprintf("a prompt has to have %s before each clip and %s after it, as in %s<audio>clip.wav</audio>%s", e.Start, e.End, e.Start, e.End)
}

// earConditions are sentences about prompts with clips.
func earConditions(e *arch.Ear) []string {
	switch {
	case e.Features == arch.USMFeatures:
		return universalConditions(e)
	case e.Subsampling != nil:
		return conformerConditions(e)
	}
	list := []string{fmt.Sprintf("a clip takes a token for each 40 ms; the engine reads its first %d s and drops the rest", e.Frames/100)}
	if e.Piece > 0 {
		list[0] = fmt.Sprintf("a clip takes a token for each 40 ms; the library reads its first %d s, the engine all", e.Frames/100)
	}
	if e.Start != "" {
		list = append(list, wordsAround(e))
	}
	return append(list, takesClips,
		"a clip should end with 30 ms of silence: the engine puts a mirror image after its end, the library silence")
}
