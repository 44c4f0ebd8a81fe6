package lower

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// ear lowers an encoder of sound to a graph from [1, Mels, frames] to [1, rows, width].
func ear(e *arch.Ear) (*Part, error) {
	b := newBuilder()
	b.g.Outputs, b.tower = []string{mnn.SoundRows}, true
	hidden := int32(e.Hidden)
	features := b.input(mnn.FeaturesInput, mnn.DTFloat, 1, int32(e.Mels), -1)
	length := b.slice("/frames", b.op("/shape", mnn.OpShape, nil, features), b.list(2), 3, 0)
	half := func(name string, n value) value { return b.binary(name, mnn.BinaryRealDiv, n, b.list(2)) }
	double := func(name string, n value) value { return b.binary(name, mnn.BinaryMul, n, b.list(2)) }
	states := half("/states", b.binary("/frames_and_one", mnn.BinaryAdd, length, b.list(1)))

	x := b.silent(e, features, length)
	x = b.linear("/conv1/Linear", b.windows("/conv1/", x, e.Mels), &e.First, Slot{Fine: true}, 1, -1, hidden)
	x = b.unary("/conv1/gelu", mnn.UnaryGeluStandard, x)

	none := b.zeros("/conv2/none", 1, 1, hidden)
	x = b.windows("/conv2/", b.concat("/conv2/padded", 1, none, x, none), e.Hidden)
	x = b.cut("/conv2/pairs", x, double("/conv2/even", states))
	x = b.slice("/conv2/every_other", b.reshape("/conv2/pair", x, 1, -1, 6*hidden), b.list(0), 3*hidden, 2)
	x = b.linear("/conv2/Linear", x, &e.Second, Slot{Fine: true}, 1, -1, hidden)
	x = b.unary("/conv2/gelu", mnn.UnaryGeluStandard, x)

	positions := b.cut("/positions/used", b.constant("/positions", e.Positions, 1, int32(e.Frames/2), hidden), states)
	x, err := b.earLayers(e, b.binary("/with_positions", mnn.BinaryAdd, x, positions))
	if err != nil {
		return nil, err
	}
	x = b.cut("/mean/pairs", x, double("/mean/even", half("/mean/rows", states)))
	x = b.reshape("/mean/pair", x, 1, -1, 2*hidden)
	sum := b.binary("/mean/sum", mnn.BinaryAdd, b.slice("/mean/first", x, b.list(0), hidden, 2), b.slice("/mean/second", x, b.list(hidden), sliceEnd, 2))
	x = b.norm("/post_norm", b.times("/mean", sum, 0.5), e.PostNorm)
	x = b.linear("/projector/Linear", x, &e.Out, Slot{}, 1, -1, int32(e.Out.Weight.Rows))
	b.g.Tensors[x] = mnn.SoundRows
	return &Part{Name: mnn.AudioPart, Graph: b.g, Slots: b.slots}, b.err
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

// silent returns features as frames, with one of zeros before them and two after them: of silence as long as there are less than Frames,
// then of zeros. The library's clips are that long, and a mask hides their end from the layers but not from convolutions. Silence is what
// the features of 0 become: 8 powers of ten below the largest, at least 1e-10, as (log10 + 4) / 4.
func (b *builder) silent(e *arch.Ear, features, length value) value {
	mels := int32(e.Mels)
	x := b.permute("/each_frame", features, 0, 2, 1)
	most := b.op("/silence/largest", mnn.OpReduction, &mnn.Reduction{Op: mnn.ReduceMaximum, Dims: []int32{1, 2}, Keep: true, T: mnn.DTFloat}, x)
	silence := b.binary("/silence/below", mnn.BinarySub, most, b.scalarFloat(2))
	silence = b.binary("/silence/least", mnn.BinaryMaximum, silence, b.scalarFloat(-1.5))
	// 1 for each of the two frames that is not beyond Frames.
	left := b.binary("/silence/left", mnn.BinarySub, b.list(int32(e.Frames), int32(e.Frames-1)), length)
	left = b.binary("/silence/there", mnn.BinaryMinimum, b.binary("/silence/positive", mnn.BinaryMaximum, left, b.list(0, 0)), b.list(1, 1))
	tail := b.binary("/silence/values", mnn.BinaryMul, b.reshape("/silence/rows", b.toFloat("/silence/factors", left), 1, 2, 1), silence)
	tail = b.binary("/silence", mnn.BinaryMul, tail, b.ones(1, 1, mels))
	return b.concat("/padded", 1, b.zeros("/none", 1, 1, mels), x, tail)
}

// windows puts three rows of width elements side by side, the elements of a channel next to each other, for every row but the first and
// the last: a convolution is then a linear layer.
func (b *builder) windows(at string, x value, width int) value {
	rows := func(name string, begin, end int32) value {
		return b.reshape(at+name+"_channels", b.slice(at+name, x, b.list(begin), end, 1), 1, -1, int32(width), 1)
	}
	three := b.concat(at+"three", 3, rows("before", 0, -2), rows("here", 1, -1), rows("after", 2, sliceEnd))
	return b.reshape(at+"windows", three, 1, -1, int32(3*width))
}

// cut keeps the first rows of [1, rows, ...]; n is int32 [1].
func (b *builder) cut(name string, x, n value) value {
	return b.op(name, mnn.OpStridedSlice, &mnn.StridedSlice{FromType: 1}, x, b.list(0), n, b.list(1), b.list(1))
}

// zeros is a constant of zeros.
func (b *builder) zeros(name string, dims ...int32) value {
	n := 1
	for _, d := range dims {
		n *= int(d)
	}
	return b.floats(name, make([]float32, n), dims...)
}

// earConditions are sentences about prompts with clips.
func earConditions(e *arch.Ear) []string {
	list := []string{fmt.Sprintf("a clip takes a token for each 40 ms; the engine reads its first %d s and drops the rest", e.Frames/100)}
	if e.Start != "" {
		list = append(list, fmt.Sprintf("a prompt has to have %s before each clip and %s after it, as in %s<audio>clip.wav</audio>%s",
			e.Start, e.End, e.Start, e.End))
	}
	return append(list, "the engine takes clips at 16 kHz as they are; it converts others without a filter, and reads the first channel: convert clips before",
		"a clip should end with 30 ms of silence: the engine puts a mirror image after its end, the library silence")
}
