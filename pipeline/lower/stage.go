package lower

import (
	"fmt"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// plane are the states of convolutions: a row for each of height x width places, [1, height*width, channels], or a plane for each channel,
// [1, channels, height, width]. Linear layers take rows, convolutions of each channel alone planes. The height is -1 if the graph is for any.
type plane struct {
	x                       value
	planes                  bool
	height, width, channels int32
}

// places returns their number, or -1.
func (s *plane) places() int32 {
	if s.height < 0 {
		return -1
	}
	return s.height * s.width
}

// stagedTower lowers a tower of convolutions to a graph from [1, 3, Size, Size] to [Rows, 1, width].
func stagedTower(t *arch.Tower) (*Part, error) {
	b := newBuilder()
	b.g.Outputs, b.tower = []string{mnn.PictureRows}, true
	s := plane{b.input(mnn.PicturesInput, mnn.DTFloat, 1, 3, int32(t.Size), int32(t.Size)), true, int32(t.Size), int32(t.Size), 3}
	attended := 0
	for i := range t.Stages {
		at := "/stages." + strconv.Itoa(i) + "/"
		for k := range t.Stages[i].Enter {
			if err := b.convolve(at+"enter."+strconv.Itoa(k)+"/", &s, &t.Stages[i].Enter[k]); err != nil {
				return nil, fmt.Errorf("%s: stage %d: %w", mnn.VisualPart, i, err)
			}
		}
		for k := range t.Stages[i].Blocks {
			if err := b.stageBlock(at+"blocks."+strconv.Itoa(k)+"/", &s, &t.Stages[i].Blocks[k], &attended); err != nil {
				return nil, fmt.Errorf("%s: stage %d, block %d: %w", mnn.VisualPart, i, k, err)
			}
		}
	}
	x, err := b.joined("/projector/", t, &t.Projector, b.rowsOf("/rows", &s))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", mnn.VisualPart, err)
	}
	b.g.Tensors[x] = mnn.PictureRows
	return &Part{Name: mnn.VisualPart, Graph: b.g, Slots: b.slots}, b.err
}

// stageBlock lowers a block. attended counts those with attention.
func (b *builder) stageBlock(at string, s *plane, block *arch.StageBlock, attended *int) error {
	if block.Mix != nil {
		if err := b.convolve(at+"mix/", s, block.Mix); err != nil {
			return err
		}
	}
	near := *s
	s.x, s.planes = b.rowsOf(at+"rows", s), false
	if len(block.Attend) > 0 {
		var err error
		if s.x, err = b.layer(*attended, block.Attend, s.x); err != nil {
			return err
		}
		near = *s
		*attended++
	}
	if err := b.convolve(at+"near/", &near, &block.Near); err != nil {
		return err
	}
	y, err := b.mlp(at+"mlp/", &block.MLP, b.rowsOf(at+"near/rows", &near))
	if err != nil {
		return err
	}
	y = b.binary(at+"mlp/factored", mnn.BinaryMul, y, b.constant(at+"mlp/factors", block.Factors))
	s.x = b.binary(at+"sum", mnn.BinaryAdd, s.x, y)
	return nil
}

// rowsOf returns the states as rows.
func (b *builder) rowsOf(name string, s *plane) value {
	if !s.planes {
		return s.x
	}
	return b.permute(name, b.reshape(name+"/channels", s.x, 1, s.channels, s.places()), 0, 2, 1)
}

// planesOf returns the states as planes.
func (b *builder) planesOf(name string, s *plane) value {
	if s.planes {
		return s.x
	}
	return b.reshape(name, b.permute(name+"/channels", s.x, 0, 2, 1), 1, s.channels, s.height, s.width)
}

// convolve replaces the states by their convolution.
func (b *builder) convolve(at string, s *plane, c *arch.Convolution) error {
	out := plane{height: s.height, width: int32(c.Out(int(s.width))), channels: int32(c.Weight.Rows)}
	if s.height > 0 {
		out.height = int32(c.Out(int(s.height)))
	}
	switch {
	case c.Each:
		out.x, out.planes = b.depthwise(at, s, c), true
	case c.Kernel == 1 && c.Stride == 1:
		out.x = b.linear(at+"Linear", b.rowsOf(at+"rows", s), &c.Linear, Slot{}, 1, -1, out.channels)
	case c.Kernel == 3 && c.Stride == 2 && s.height > 0 && s.height%2 == 0 && s.width%2 == 0:
		// A small matrix that every pixel goes through, like the convolutions of an encoder of sound.
		out.x = b.linear(at+"Linear", b.everyOtherPlace(at, s), &c.Linear, Slot{Fine: true}, 1, -1, out.channels)
	default:
		return fmt.Errorf("a convolution of all channels with kernel %d, stride %d, of %d x %d places: %w",
			c.Kernel, c.Stride, s.height, s.width, tensor.ErrUnsupported)
	}
	if c.Reduce.Weight.Tensor != "" {
		out.x, out.planes = b.excite(at, &out, c), false
	}
	if c.Activation != "" {
		var err error
		if out.x, err = b.activate(at, &arch.MLP{Activation: c.Activation}, out.x); err != nil {
			return err
		}
	}
	*s = out
	return nil
}

// depthwise is a convolution of each channel alone; one that makes several of each is given the channel as often.
func (b *builder) depthwise(at string, s *plane, c *arch.Convolution) value {
	x := b.planesOf(at+"planes", s)
	n, edge := int32(c.Weight.Rows), int32(c.Kernel)
	if times := n / s.channels; times > 1 {
		x = b.binary(at+"repeated", mnn.BinaryMul, b.reshape(at+"each", x, 1, s.channels, 1, s.places()), b.ones(1, 1, times, 1))
		x = b.reshape(at+"repeated_planes", x, 1, n, s.height, s.width)
	}
	x = b.op(at+"pre_convert", mnn.OpConvertTensor, &mnn.Convert{Source: mnn.NCHW, Dest: mnn.NC4HW4}, x)
	kernels, bias := b.constant(at+"kernels", c.Weight, n, 1, edge, edge), b.constant(at+"bias", c.Bias, n)
	x = b.op(at+"Depthwise", mnn.OpDepthwise, &mnn.Depthwise{
		KernelX: edge, KernelY: edge, StrideX: int32(c.Stride), StrideY: int32(c.Stride), DilateX: 1, DilateY: 1, PadX: edge / 2, PadY: edge / 2,
		Group: n, Outputs: n, Inputs: n,
	}, x, kernels, bias)
	return b.op(at+"post_convert", mnn.OpConvertTensor, &mnn.Convert{Source: mnn.NC4HW4, Dest: mnn.NCHW}, x)
}

// everyOtherPlace puts side by side what a kernel of 3 x 3 reads around every other place of every other row, [1, places, channels*9].
func (b *builder) everyOtherPlace(at string, s *plane) value {
	rows := b.zeros(at+"none_above", 1, s.channels, 1, s.width)
	x := b.concat(at+"padded_rows", 2, rows, b.planesOf(at+"planes", s), rows)
	columns := b.zeros(at+"none_beside", 1, s.channels, s.height+2, 1)
	x = b.concat(at+"padded", 3, columns, x, columns)
	return b.nine(at, x, s.channels, s.height/2, s.width/2)
}

// nine is everyOtherPlace for planes with zeros around them, of twice as many rows and columns as the result and two more; rows may be -1.
func (b *builder) nine(at string, x value, channels, rows, columns int32) value {
	places, pairs := int32(-1), int32(-1)
	if rows > 0 {
		places, pairs = rows*columns, rows+1
	}
	x = b.reshape(at+"pairs", x, channels, pairs, 2, columns+1, 2)
	// Place k of a kernel is in pair k/2, the first or second of it.
	part := func(name string, x value, k, n, axis int32) value {
		end := k/2 + n
		if n < 0 {
			if end = -1; k == 2 {
				end = sliceEnd
			}
		}
		x = b.slice(name+"/pair", x, b.list(k/2), end, axis)
		return b.slice(name, x, b.list(k%2), k%2+1, axis+1)
	}
	var all []value
	for i := range int32(3) {
		row := at + "row_" + strconv.Itoa(int(i))
		y := part(row, x, i, rows, 1)
		for k := range int32(3) {
			name := row + "/column_" + strconv.Itoa(int(k))
			all = append(all, b.reshape(name+"/plane", part(name, y, k, columns, 3), channels, 1, places))
		}
	}
	x = b.reshape(at+"windows", b.concat(at+"nine", 1, all...), 1, 9*channels, places)
	return b.permute(at+"each_window", x, 0, 2, 1)
}

// excite multiplies the channels of rows by what their means become.
func (b *builder) excite(at string, s *plane, c *arch.Convolution) value {
	x := b.rowsOf(at+"rows", s)
	y := b.op(at+"sums", mnn.OpReduction, &mnn.Reduction{Op: mnn.ReduceSum, Dims: []int32{1}, Keep: true, T: mnn.DTFloat}, x)
	y = b.times(at+"means", y, 1/float64(s.places()))
	y = b.relu(at+"relu", b.linear(at+"reduce/Linear", y, &c.Reduce, Slot{}, 1, -1, int32(c.Reduce.Weight.Rows)))
	y = b.linear(at+"expand/Linear", y, &c.Expand, Slot{}, 1, -1, s.channels)
	return b.binary(at+"excited", mnn.BinaryMul, x, b.unary(at+"sigmoid", mnn.UnarySigmoid, y))
}
