package forward

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// stage computes a stage of a tower of convolutions.
type stage struct {
	*arch.Stage
	pass *Model // of the blocks with attention, in order
}

// plane holds the rows of height x width places, from left to right and then from top to bottom.
type plane struct {
	rows          []float32
	height, width int
}

// newStages checks the stages of a tower.
func newStages(t *arch.Tower, m *Model, src tensor.Source, threads int) ([]stage, error) {
	var list []stage
	channels, side := 3, t.Size
	for i := range t.Stages {
		s := &t.Stages[i]
		if len(s.Enter) == 0 {
			return nil, fmt.Errorf("stage %d: no convolution: %w", i, tensor.ErrCorrupt)
		}
		for k := range s.Enter {
			if err := m.checkConvolution(&s.Enter[k], channels); err != nil {
				return nil, fmt.Errorf("stage %d: %w", i, err)
			}
			channels, side = s.Enter[k].Weight.Rows, s.Enter[k].Out(side)
		}
		d := &arch.Decoder{Hidden: channels}
		for k := range s.Blocks {
			b := &s.Blocks[k]
			var err error
			if b.Mix != nil {
				err = m.checkConvolution(b.Mix, channels)
			}
			if err = cmp.Or(err, m.checkConvolution(&b.Near, channels), m.checkLinear("up", &b.MLP.Up, b.MLP.Intermediate, channels),
				m.checkLinear("down", &b.MLP.Down, channels, b.MLP.Intermediate), m.checkVector("factors", b.Factors, channels)); err != nil {
				return nil, fmt.Errorf("stage %d, block %d: %w", i, k, err)
			}
			if b.Near.Weight.Rows != channels || b.Near.Stride != 1 || b.Mix != nil && (b.Mix.Weight.Rows != channels || b.Mix.Stride != 1) {
				return nil, fmt.Errorf("stage %d, block %d: a convolution to other places or channels: %w", i, k, tensor.ErrCorrupt)
			}
			if len(b.Attend) > 0 {
				d.Layers = append(d.Layers, b.Attend)
			}
		}
		pass := unchecked(d, src, threads)
		if err := pass.checkLayers(); err != nil {
			return nil, fmt.Errorf("stage %d: %w", i, err)
		}
		list = append(list, stage{s, pass})
	}
	if channels != t.Hidden || side != t.Side() {
		return nil, fmt.Errorf("stages end in %d x %d places of %d channels, want %d of %d: %w", side, side, channels, t.Side(), t.Hidden, tensor.ErrCorrupt)
	}
	return list, nil
}

// checkConvolution checks the weights of a convolution of so many channels.
func (m *Model) checkConvolution(c *arch.Convolution, channels int) error {
	rows, cols := c.Weight.Rows, c.Kernel*c.Kernel
	if c.In != channels || c.Kernel < 1 || c.Kernel%2 == 0 || c.Stride < 1 || rows < 1 || c.Each && rows%channels != 0 {
		return fmt.Errorf("a convolution of %d channels to %d, kernel %d, stride %d, after %d: %w", c.In, rows, c.Kernel, c.Stride, channels, tensor.ErrCorrupt)
	}
	if !c.Each {
		cols *= channels
	}
	err := cmp.Or(m.checkLinear("convolution", &c.Linear, rows, cols), m.checkNorm("norm of a convolution", c.Norm, rows))
	if n := c.Reduce.Weight.Rows; err == nil && c.Reduce.Weight.Tensor != "" {
		err = cmp.Or(m.checkLinear("reduction", &c.Reduce, n, rows), m.checkLinear("expansion", &c.Expand, rows, n))
	}
	return err
}

// staged returns the states of a picture after all stages.
func (t *Tower) staged(ctx context.Context, pixels []float32) ([]float32, error) {
	n := t.tower.Size
	x := plane{make([]float32, len(pixels)), n, n}
	for i, p := range pixels {
		x.rows[i%(n*n)*3+i/(n*n)] = p
	}
	for i := range t.stages {
		s := &t.stages[i]
		for k := range s.Enter {
			if err := t.convolve(ctx, &x, &s.Enter[k]); err != nil {
				return nil, err
			}
		}
		attended := 0
		for k := range s.Blocks {
			b := &s.Blocks[k]
			if b.Mix != nil {
				if err := t.convolve(ctx, &x, b.Mix); err != nil {
					return nil, err
				}
			}
			if len(b.Attend) > 0 {
				if err := t.through(ctx, s.pass.Layer(attended), x.rows, Equal(1, x.height*x.width)); err != nil {
					return nil, err
				}
				attended++
			}
			if err := t.widen(ctx, &x, b); err != nil {
				return nil, err
			}
		}
	}
	return x.rows, nil
}

// widen adds what the MLP of a block makes of the places and those next to them.
func (t *Tower) widen(ctx context.Context, x *plane, b *arch.StageBlock) error {
	near := *x
	if err := t.convolve(ctx, &near, &b.Near); err != nil {
		return err
	}
	y, err := t.product(ctx, near.rows, &b.MLP.Up)
	if err != nil {
		return err
	}
	(&activation{Activation: b.MLP.Activation}).apply(y, y)
	if y, err = t.product(ctx, y, &b.MLP.Down); err != nil {
		return err
	}
	factors, err := t.pass.vector(b.Factors)
	if err != nil {
		return err
	}
	for row := range slices.Chunk(y, len(factors)) {
		kernel.Mul(row, row, factors)
	}
	t.pass.addAll(x.rows, y)
	return nil
}

// convolve replaces a plane by its convolution.
func (o *outer) convolve(ctx context.Context, x *plane, c *arch.Convolution) error {
	y := plane{height: c.Out(x.height), width: c.Out(x.width)}
	var err error
	switch {
	case c.Each:
		err = o.each(x, &y, c)
	case c.Kernel == 1 && c.Stride == 1:
		y.rows, err = o.product(ctx, x.rows, &c.Linear)
	default:
		y.rows, err = o.product(ctx, around(x, &y, c), &c.Linear)
	}
	if err == nil && c.Reduce.Weight.Tensor != "" {
		err = o.excite(ctx, y.rows, c)
	}
	if err == nil {
		err = o.norm(y.rows, c.Norm)
	}
	if err != nil {
		return err
	}
	if c.Activation != "" {
		(&activation{Activation: c.Activation}).apply(y.rows, y.rows)
	}
	*x = y
	return nil
}

// around returns for each place of the result y what a kernel reads, in the order of its weights.
func around(x, y *plane, c *arch.Convolution) []float32 {
	k := c.Kernel
	out := make([]float32, y.height*y.width*c.In*k*k)
	for place := range y.height * y.width {
		at := out[place*c.In*k*k:]
		reads(x, y, place, c, func(i, from int) {
			if c.ChannelsLast {
				copy(at[i*c.In:], x.rows[from*c.In:(from+1)*c.In])
				return
			}
			for channel, v := range x.rows[from*c.In : (from+1)*c.In] {
				at[channel*k*k+i] = v
			}
		})
	}
	return out
}

// reads calls f with each element of a kernel, from left to right and then from top to bottom, that reads a place of x for a place of the
// result y, and the place that it reads.
func reads(x, y *plane, place int, c *arch.Convolution, f func(i, from int)) {
	for i := range c.Kernel * c.Kernel {
		row, column := place/y.width*c.Stride+i/c.Kernel-c.Kernel/2, place%y.width*c.Stride+i%c.Kernel-c.Kernel/2
		if row >= 0 && row < x.height && column >= 0 && column < x.width {
			f(i, row*x.width+column)
		}
	}
}

// each is a convolution of each channel alone; it fills y.
func (o *outer) each(x, y *plane, c *arch.Convolution) error {
	kernels, err := o.pass.values(c.Weight)
	if err != nil {
		return err
	}
	bias, err := o.pass.vector(c.Bias)
	if err != nil {
		return err
	}
	n, area, times := c.Weight.Rows, c.Kernel*c.Kernel, c.Weight.Rows/c.In
	y.rows = make([]float32, y.height*y.width*n)
	kernel.Parallel(o.pass.threads, y.height*y.width, func(lo, hi int) {
		for place := lo; place < hi; place++ {
			row := y.rows[place*n : (place+1)*n]
			copy(row, bias)
			reads(x, y, place, c, func(i, from int) {
				in := x.rows[from*c.In : (from+1)*c.In]
				for k := range row {
					row[k] += float32(in[k/times] * kernels[k*area+i])
				}
			})
		}
	})
	return nil
}

// excite multiplies the channels of rows by what their means become.
func (o *outer) excite(ctx context.Context, rows []float32, c *arch.Convolution) error {
	n := c.Weight.Rows
	sums, means := make([]float64, n), make([]float32, n)
	for i, v := range rows {
		sums[i%n] += float64(v)
	}
	for k, s := range sums {
		means[k] = float32(s / float64(len(rows)/n))
	}
	y, err := o.product(ctx, means, &c.Reduce)
	if err != nil {
		return err
	}
	(&activation{Activation: arch.ReLU}).apply(y, y)
	if y, err = o.product(ctx, y, &c.Expand); err != nil {
		return err
	}
	for k, v := range y {
		y[k] = float32(sigmoid(float64(v)))
	}
	for row := range slices.Chunk(rows, n) {
		kernel.Mul(row, row, y)
	}
	return nil
}
