package lower

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// usmEngine is the oldest engine that has the features of the Universal Speech Model.
const usmEngine = "3.6.0"

// universal is [ear] for features of the Universal Speech Model, which the engine gives as [1, frames, Mels], from one layer of which on a
// state attends to near ones. The states are filled up to whole pieces, the last of which the result leaves out.
func universal(e *arch.Ear) (*Part, error) {
	b := newBuilder()
	b.g.Outputs, b.tower = []string{mnn.SoundRows}, true
	x := b.input(mnn.FeaturesInput, mnn.DTFloat, 1, -1, int32(e.Mels))
	x = b.slice("/cut", x, b.list(0), int32(e.Frames), 1)
	s := e.Subsampling
	if !s.LastTwice || !s.ByFeature || e.PostNorm != nil || e.BetweenNorm == nil {
		return nil, fmt.Errorf("%s: features of the engine that are not read as those of Gemma 4: %w", mnn.AudioPart, tensor.ErrUnsupported)
	}
	x = b.concat("/frames/last_twice", 1, x, b.slice("/frames/last", x, b.list(-1), sliceEnd, 1))
	height := b.slice("/frames", b.op("/shape", mnn.OpShape, nil, x), b.list(1), 2, 0)
	p := &plane{x: x, height: -1, width: int32(e.Mels), channels: 1}
	for i := range s.Convolutions {
		var err error
		if height, err = b.everyOtherFrame(fmt.Sprintf("/conv.%d/", i), p, &s.Convolutions[i], height); err != nil {
			return nil, err
		}
	}
	x = b.linear("/subsampling/Linear", p.x, &s.Out, Slot{}, 1, -1, int32(e.Hidden))
	x = b.times("/subsampling/scale", x, or1(s.Scale))
	b.states = height
	x, err := b.earLayers(e, b.filled(e, x))
	if err != nil {
		return nil, err
	}
	x = b.cut("/without_filling", x, b.states)
	x = b.linear("/projector/between/Linear", x, &e.Between, Slot{}, 1, -1, int32(e.Between.Weight.Rows))
	x = b.norm("/projector/norm", x, e.BetweenNorm)
	x = b.linear("/projector/Linear", x, &e.Out, Slot{}, 1, -1, int32(e.Out.Weight.Rows))
	// The engine divides rows by the root of hidden_size, which is the number of all columns.
	columns := e.Out.Weight.Rows + e.Tail.Rows
	x = b.times("/projector/scale", x, or1(e.Scale)*mnn.USMDivisor(columns))
	if e.Tail.Tensor != "" {
		tail := b.times("/side/scale", b.constant("/side/row", e.Tail, 1, 1, int32(e.Tail.Rows)), mnn.USMDivisor(columns))
		none := b.times("/side/none", b.slice("/side/column", x, b.list(0), 1, 2), 0)
		x = b.concat("/with_side", 2, x, b.binary("/side", mnn.BinaryAdd, none, tail))
	}
	b.g.Tensors[x] = mnn.SoundRows
	return &Part{Name: mnn.AudioPart, Graph: b.g, Slots: b.slots}, b.err
}

// everyOtherFrame replaces rows of so many frames [1, frames, width*channels] by a convolution with steps of 2, and returns how many frames are
// left. There are zeros around the places. Ops have few dimensions, because the engine takes long to plan copies in many.
func (b *builder) everyOtherFrame(at string, p *plane, c *arch.Convolution, frames value) (value, error) {
	if c.Each || c.Kernel != 3 || c.Stride != 2 || !c.ChannelsLast || p.width%2 != 0 || c.Reduce.Weight.Tensor != "" || c.Norm == nil {
		return 0, fmt.Errorf("%s: a convolution with kernel %d, step %d, of %d features: %w", mnn.AudioPart, c.Kernel, c.Stride, p.width, tensor.ErrUnsupported)
	}
	n, row := p.channels, (p.width/2)*3*p.channels
	beside := b.times(at+"none_beside", b.slice(at+"first_place", p.x, b.list(0), n, 2), 0)
	x := b.reshape(at+"places", b.concat(at+"padded_frames", 2, beside, p.x, beside), -1, p.width/2+1, 2*n)
	third := b.slice(at+"third", b.slice(at+"next_places", x, b.list(1), sliceEnd, 1), b.list(0), n, 2)
	x = b.concat(at+"three_places", 2, b.slice(at+"two_places", x, b.list(0), p.width/2, 1), third) // [frames, width/2, 3*channels]
	x = b.concat(at+"padded", 1, b.zeros(at+"none_before", 1, 1, row), b.reshape(at+"frames", x, 1, -1, row), b.zeros(at+"none_after", 1, 2, row))
	left := b.binary(at+"left", mnn.BinaryRealDiv, b.binary(at+"and_one", mnn.BinaryAdd, frames, b.list(1)), b.list(2))
	even := b.binary(at+"even", mnn.BinaryMul, b.binary(at+"pairs", mnn.BinaryAdd, left, b.list(1)), b.list(2))
	x = b.reshape(at+"pairs_of_frames", b.cut(at+"even_frames", x, even), 1, -1, 2*row)
	here := b.slice(at+"pair", x, b.list(0), -1, 1)
	next := b.slice(at+"next_pair", x, b.list(1), sliceEnd, 1)
	part := func(name string, x value, from, to int32) value {
		return b.reshape(at+name+"_places", b.slice(at+name, x, b.list(from), to, 2), 1, -1, 3*n)
	}
	x = b.concat(at+"nine", 2, part("before", here, 0, row), part("frame", here, row, 2*row), part("after", next, 0, row))
	*p = plane{height: -1, width: p.width / 2, channels: int32(c.Weight.Rows)}
	x = b.norm(at+"norm", b.linear(at+"Linear", x, &c.Linear, Slot{Fine: true}, 1, -1, p.channels), c.Norm)
	x, err := b.activate(at, &arch.MLP{Activation: c.Activation}, x)
	p.x = b.reshape(at+"states", x, 1, -1, p.width*p.channels)
	return left, err
}

// nearStates are the states of an encoder whose states attend to near ones. They are divided into pieces: a state attends to some of its own
// piece, of the one before if there are states before, and of the one after if there are such.
type nearStates struct {
	past, future         int
	length               int32 // of a piece
	before, after, count int32 // pieces with which a state has scores
	there                value // 1 for each state and 0 for what they are filled up with, [1, states, 1]
	mask                 value // [1, pieces, length, count*length]
}

// filled fills states [1, states, Hidden] up to whole pieces.
func (b *builder) filled(e *arch.Ear, x value) value {
	s := &nearStates{}
	for _, l := range e.Layers {
		for block := range l.Blocks() {
			if a, ok := block.(*arch.NearAttention); ok {
				s.past, s.future = a.Past, a.Future
			}
		}
	}
	s.length, s.before, s.after = int32(max(s.past, s.future)+1), int32(min(s.past, 1)), int32(min(s.future, 1))
	s.count = s.before + 1 + s.after
	n := s.length
	pieces := b.binary("/pieces", mnn.BinaryRealDiv, b.binary("/pieces/states_and_more", mnn.BinaryAdd, b.states, b.list(n-1)), b.list(n))
	all := b.binary("/pieces/states", mnn.BinaryMul, pieces, b.list(n))
	s.there = b.reshape("/pieces/states_there", b.below("/pieces/state", all, b.states), 1, -1, 1)
	b.near = s
	s.mask = b.nearbyMask()
	return b.cut("/pieces/cut", b.concat("/pieces/filled", 1, x, b.zeros("/pieces/none", 1, n, int32(e.Hidden))), all)
}

// nearbyMask hides the states that are not near, and those that there are not.
func (b *builder) nearbyMask() value {
	s := b.near
	rows, columns := int(s.length), int(s.count*s.length)
	apart := make([]float32, rows*columns)
	for i := range apart {
		if d := i/columns - i%columns + int(s.before)*rows; d > s.past || d < -s.future {
			apart[i] = -hidden
		}
	}
	there := b.reshape("/pieces/keys_there", b.nearby("/pieces/keys", s.there, 1), 1, -1, 1, int32(columns))
	missing := b.times("/pieces/hidden", b.binary("/pieces/missing", mnn.BinarySub, there, b.scalarFloat(1)), hidden)
	return b.binary("/pieces/mask", mnn.BinaryAdd, missing, b.floats("/pieces/apart", apart, 1, 1, int32(rows), int32(columns)))
}

// nearby returns for each piece the rows of [1, states, tail...] that its states have scores with, [pieces, count*length, tail...].
func (b *builder) nearby(name string, x value, tail ...int32) value {
	s := b.near
	zeros := func(n int32) value { return b.zeros(name+"/none", append([]int32{1, n * s.length}, tail...)...) }
	if s.before > 0 {
		x = b.concat(name+"/after_none", 1, zeros(s.before), x)
	}
	if s.after > 0 {
		x = b.concat(name+"/before_none", 1, x, zeros(s.after))
	}
	var all []value
	for i := range s.count {
		end := int32(sliceEnd)
		if left := s.count - 1 - i; left > 0 {
			end = -left * s.length
		}
		at := fmt.Sprintf("%s/piece_%d", name, i)
		all = append(all, b.reshape(at, b.slice(at+"/rows", x, b.list(i*s.length), end, 1), append([]int32{-1, s.length}, tail...)...))
	}
	if len(all) == 1 {
		return all[0]
	}
	return b.concat(name, 1, all...)
}

// nearAttention lowers attention to near states. Products of queries with the keys of distances have in row i and column m the distance
// before*length-m. Read in rows that are shorter by one, distance i-j moves to the column of state j, and what comes from the row before to
// columns of states that are too far away.
func (b *builder) nearAttention(at string, a *arch.NearAttention, x value) (value, error) {
	s := b.near
	if s == nil || a.Past != s.past || a.Future != s.future {
		return 0, fmt.Errorf("attention to %d states before and %d after, others of other numbers: %w", a.Past, a.Future, tensor.ErrUnsupported)
	}
	heads, dim, columns := int32(a.Heads), int32(a.HeadDim), s.count*s.length
	q := b.linear(at+"q_proj/Linear", x, &a.Q, Slot{}, 1, -1, heads, dim)
	k := b.linear(at+"k_proj/Linear", x, &a.K, Slot{}, 1, -1, heads, dim)
	v := b.linear(at+"v_proj/Linear", x, &a.V, Slot{}, 1, -1, heads, dim)
	q = b.binary(at+"q_gained", mnn.BinaryMul, q, b.constant(at+"gains", a.Gains, 1, 1, 1, dim))
	k = b.times(at+"k_scale", k, a.KeyScale)
	each := func(name string, x value) value { return b.permute(at+name, x, 2, 0, 1, 3) }
	pieces := each("q_heads", b.reshape(at+"q_pieces", q, -1, s.length, heads, dim))
	k, v = each("k_heads", b.nearby(at+"k_near", k, heads, dim)), each("v_heads", b.nearby(at+"v_near", v, heads, dim))
	product := func(name string, x, y value) value {
		return b.op(at+name, mnn.OpBatchMatMul, &mnn.BatchMatMul{TransposeY: true}, x, y)
	}
	scores := product("scores", pieces, k)

	r := b.shared(fmt.Sprintf("vectors by distance %d", a.Shift), &mnn.Blob{
		Dims: []int32{1, columns + 1, int32(a.Keys.Weight.Cols)}, Format: mnn.NCHW, DType: mnn.DTFloat, Float32s: a.Vectors(int(s.before*s.length), int(columns+1)),
	})
	r = each("distance_heads", b.linear(at+"distance_proj/Linear", r, &a.Keys, Slot{}, 1, -1, heads, dim))
	far := product("distance_scores", each("q_rows", q), r)
	far = b.reshape(at+"shift/pieces", far, heads, -1, s.length*(columns+1))
	far = b.reshape(at+"shift/rows", b.slice(at+"shift/rest", far, b.list(0), s.length*columns, 2), heads, -1, s.length, columns)
	scores = b.binary(at+"scores_by_distance", mnn.BinaryAdd, scores, far)

	scores = b.times(at+"scores_capped", b.unary(at+"scores_tanh", mnn.UnaryTanh, b.times(at+"scores_uncapped", scores, 1/a.Cap)), a.Cap)
	scores = b.binary(at+"scores_masked", mnn.BinaryAdd, scores, s.mask)
	scores = b.op(at+"probabilities", mnn.OpSoftmax, &mnn.Axis{Axis: -1}, scores)
	o := b.permute(at+"mixed", b.op(at+"mix", mnn.OpBatchMatMul, &mnn.BatchMatMul{}, scores, v), 1, 2, 0, 3)
	return b.linear(at+"o_proj/Linear", b.reshape(at+"mixed_rows", o, 1, -1, heads*dim), &a.O, Slot{}, 1, -1, int32(a.O.Weight.Rows)), nil
}

// universalConditions are [earConditions] of an ear that [universal] lowers.
func universalConditions(e *arch.Ear) []string {
	return []string{
		fmt.Sprintf("a clip takes a token for each 40 ms; the package reads its first %d s and drops the rest", (e.Frames+2)/100),
		wordsAround(e), takesClips,
		"a clip should end with 40 ms of silence: the engine has one or two frames fewer than the library, and the package takes the last one twice",
		"engines before " + usmEngine + " cannot read clips for this encoder",
	}
}
