package lower

import (
	"fmt"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// conformer is [ear] for one with Subsampling.
func conformer(e *arch.Ear) (*Part, error) {
	b := newBuilder()
	b.g.Outputs, b.tower = []string{mnn.SoundRows}, true
	features := b.input(mnn.FeaturesInput, mnn.DTFloat, 1, int32(e.Mels), -1)
	x, err := b.subsampled(e, b.slice("/cut", features, b.list(0), int32(e.Frames), 2))
	if err != nil {
		return nil, err
	}
	b.states = b.slice("/states", b.op("/states/shape", mnn.OpShape, nil, x), b.list(1), 2, 0)
	most := int32(e.States(e.Frames))
	from, end := b.binary("/distances/first", mnn.BinarySub, b.list(most), b.states), b.binary("/distances/end", mnn.BinaryAdd, b.list(most-1), b.states)
	b.distances = b.between("/distances/used", b.floats("/distances", e.Distances(), 1, 2*most-1, int32(e.Hidden)), from, end, 1)
	if x, err = b.earLayers(e, x); err != nil {
		return nil, err
	}
	x = b.norm("/post_norm", x, e.PostNorm)
	x = b.linear("/projector/between/Linear", x, &e.Between, Slot{}, 1, -1, int32(e.Between.Weight.Rows))
	x = b.unary("/projector/gelu", mnn.UnaryGeluStandard, x)
	x = b.linear("/projector/Linear", x, &e.Out, Slot{}, 1, -1, int32(e.Out.Weight.Rows))
	b.g.Tensors[x] = mnn.SoundRows
	return &Part{Name: mnn.AudioPart, Graph: b.g, Slots: b.slots}, b.err
}

// subsampled returns the states before the layers, [1, states, Hidden]. Around the features and the frame of zeros after them there are zeros.
func (b *builder) subsampled(e *arch.Ear, features value) (value, error) {
	s, mels, first := e.Subsampling, int32(e.Mels), &e.Subsampling.Convolutions[0]
	if first.Each || first.Kernel != 3 || first.Stride != 2 || mels%2 != 0 {
		return 0, fmt.Errorf("%s: a first convolution with kernel %d, step %d, of %d features: %w",
			mnn.AudioPart, first.Kernel, first.Stride, mels, tensor.ErrUnsupported)
	}
	frames := b.slice("/frames", b.op("/shape", mnn.OpShape, nil, features), b.list(2), 3, 0)
	x := b.permute("/each_frame", b.around("/features/", features), 0, 2, 1)
	x = b.concat("/padded", 1, b.zeros("/none_before", 1, 1, mels+2), x, b.zeros("/none_after", 1, 3, mels+2))
	pairs := b.binary("/pairs", mnn.BinaryRealDiv, b.binary("/frames_and_four", mnn.BinaryAdd, frames, b.list(4)), b.list(2))
	x = b.cut("/pairs_of_frames", x, b.binary("/even", mnn.BinaryMul, pairs, b.list(2)))
	p := &plane{height: -1, width: mels / 2, channels: int32(first.Weight.Rows)}
	p.x = b.linear("/conv.0/Linear", b.nine("/conv.0/", x, 1, -1, p.width), &first.Linear, Slot{Fine: true}, 1, -1, p.channels)
	var err error
	if p.x, err = b.activate("/conv.0/", &arch.MLP{Activation: first.Activation}, p.x); err != nil {
		return 0, err
	}
	for i := range s.Convolutions[1:] {
		if err := b.convolve("/conv."+strconv.Itoa(i+1)+"/", p, &s.Convolutions[i+1]); err != nil {
			return 0, fmt.Errorf("%s: %w", mnn.AudioPart, err)
		}
	}
	x = b.reshape("/conv/places", b.rowsOf("/conv/rows", p), 1, -1, p.width, p.channels)
	x = b.reshape("/conv/states", b.permute("/conv/channels", x, 0, 1, 3, 2), 1, -1, p.width*p.channels)
	x = b.linear("/subsampling/Linear", x, &s.Out, Slot{}, 1, -1, int32(e.Hidden))
	return b.times("/subsampling/scale", x, or1(s.Scale)), nil
}

// distanceScores is what the distance adds to scores, [1, heads, rows, rows]; q are the queries, [1, rows, heads, dim]. The product with the
// keys of distances has in row i and column m the distance rows-1-m. With a column of zeros before it, and read in rows that are shorter by
// one, distances i-j move to column j of row i (Dai et al., appendix B).
func (b *builder) distanceScores(at string, a *arch.Attention, q value, scale float64) value {
	r, heads, dim := a.Relative, int32(a.Heads), int32(a.HeadDim)
	if b.distances == 0 {
		b.fail(fmt.Errorf("scores by the distance outside of an encoder of sound: %w", tensor.ErrUnsupported))
		return q
	}
	q = b.binary(at+"q_place", mnn.BinaryAdd, q, b.constant(at+"place", r.Place, 1, 1, heads, dim))
	q = b.permute(at+"q_place_heads", b.times(at+"q_place_scale", q, scale), 0, 2, 1, 3)
	k := b.linear(at+"distance_proj/Linear", b.distances, &r.Keys, Slot{}, 1, -1, heads, dim)
	s := b.op(at+"distance_scores", mnn.OpBatchMatMul, &mnn.BatchMatMul{TransposeY: true}, q, b.permute(at+"distance_heads", k, 0, 2, 1, 3))
	none := b.times(at+"shift/none", b.slice(at+"shift/first", s, b.list(0), 1, 3), 0)
	shape := func(name string, x value, dims ...value) value {
		return b.op(name, mnn.OpReshape, &mnn.Reshape{DimType: mnn.NCHW}, x, b.concat(name+"/shape", 0, dims...))
	}
	s = shape(at+"shift/columns", b.concat(at+"shift/padded", 3, none, s), b.list(1, heads, -1), b.states)
	s = shape(at+"shift/rows", b.slice(at+"shift/rest", s, b.list(1), sliceEnd, 2), b.list(1, heads), b.states, b.list(-1))
	return b.between(at+"shifted", s, b.list(0), b.states, 3)
}

// between is a slice along one axis from begin to end, int32 [1].
func (b *builder) between(name string, x, begin, end value, axis int32) value {
	return b.op(name, mnn.OpStridedSlice, &mnn.StridedSlice{FromType: 1}, x, begin, end, b.list(axis), b.list(1))
}

// gatedConv lowers the convolution of a Conformer.
func (b *builder) gatedConv(p string, c *arch.GatedConv, x value) value {
	n, taps := int32(c.Out.Weight.Rows), int32(c.Kernel.Cols)
	in := b.linear(p+"in_proj/Linear", x, &c.In, Slot{}, 1, -1, 2*n)
	gate := b.unary(p+"sigmoid", mnn.UnarySigmoid, b.slice(p+"gate", in, b.list(n), 2*n, 2))
	x = b.binary(p+"gated", mnn.BinaryMul, b.slice(p+"values", in, b.list(0), n, 2), gate)
	x, pad := b.permute(p+"channels", x, 0, 2, 1), taps/2
	if c.Causal && taps > 1 {
		x, pad = b.concat(p+"padded", 2, b.zeros(p+"none", 1, n, taps-1), x), 0
	}
	x = b.reshape(p+"lines", x, 1, n, 1, -1)
	x = b.op(p+"pre_convert", mnn.OpConvertTensor, &mnn.Convert{Source: mnn.NCHW, Dest: mnn.NC4HW4}, x)
	kernels, bias := b.constant(p+"kernels", c.Kernel, n, 1, 1, taps), value(0)
	if c.Bias.Tensor != "" {
		bias = b.constant(p+"bias", c.Bias, n)
	} else {
		bias = b.zeros(p+"no_bias", n)
	}
	x = b.op(p+"Depthwise", mnn.OpDepthwise, &mnn.Depthwise{
		KernelX: taps, KernelY: 1, StrideX: 1, StrideY: 1, DilateX: 1, DilateY: 1, PadX: pad, Group: n, Outputs: n, Inputs: n,
	}, x, kernels, bias)
	x = b.op(p+"post_convert", mnn.OpConvertTensor, &mnn.Convert{Source: mnn.NC4HW4, Dest: mnn.NCHW}, x)
	x = b.permute(p+"rows", b.reshape(p+"flat", x, 1, n, -1), 0, 2, 1)
	if c.Norm != nil {
		x = b.norm(p+"norm", x, c.Norm)
	}
	return b.linear(p+"out_proj/Linear", b.unary(p+"silu", mnn.UnarySilu, x), &c.Out, Slot{}, 1, -1, n)
}

// conformerConditions are [earConditions] of an ear with Subsampling.
func conformerConditions(e *arch.Ear) []string {
	each := 10
	for i := range e.Subsampling.Convolutions {
		each *= e.Subsampling.Convolutions[i].Stride
	}
	return []string{
		fmt.Sprintf("a clip takes a token for each %d ms, as in <audio>clip.wav</audio>; the package reads its first %d s and drops the rest", each, e.Frames/100),
		"two clips need text between them: the engine takes clips that follow one another for one",
		takesClips,
	}
}
