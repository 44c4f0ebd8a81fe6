package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Depthwise is a convolution of each channel alone for planes of one size.
type Depthwise struct {
	// Shape of the output, [1, channels, rows, columns].
	Shape         []int
	height, width int
	stride        int
	// edgeY x edgeX are the kernels, padY and padX the zeros on each side.
	edgeY, edgeX, padY, padX int
}

// NewDepthwise prepares a convolution for inputs of these shapes: planes, kernels and biases.
func NewDepthwise(p *mnn.Depthwise, x, kernels, bias []int) (*Depthwise, error) {
	d := &Depthwise{stride: int(p.StrideX), edgeY: int(p.KernelY), edgeX: int(p.KernelX), padY: int(p.PadY), padX: int(p.PadX)}
	n, area := int(p.Outputs), d.edgeY*d.edgeX
	if len(x) != 4 || x[0] != 1 || x[1] != n || min(x[2], x[3]) < 1 || x[2]+2*d.padY < d.edgeY || x[3]+2*d.padX < d.edgeX ||
		len(kernels) == 0 || kernels[0] != n || Count(kernels) != n*area || Count(bias) != n {
		return nil, fmt.Errorf("%d kernels of %d x %d, of shape %v with biases %v, for %v: %w", n, d.edgeY, d.edgeX, kernels, bias, x, tensor.ErrCorrupt)
	}
	d.height, d.width = x[2], x[3]
	d.Shape = []int{1, n, (d.height+2*d.padY-d.edgeY)/d.stride + 1, (d.width+2*d.padX-d.edgeX)/d.stride + 1}
	return d, nil
}

// Channels computes channels lo to hi-1. An element is its bias, to which products are added from left to right and then from top to bottom.
func (d *Depthwise) Channels(dst, x, kernels, bias []float32, lo, hi int) {
	rows, columns := d.Shape[2], d.Shape[3]
	line := make([]float32, columns) // what a row of results takes of a row of the plane
	for c := lo; c < hi; c++ {
		plane, out := x[c*d.height*d.width:][:d.height*d.width], dst[c*rows*columns:][:rows*columns]
		for i := range out {
			out[i] = bias[c]
		}
		for i := range rows {
			for k := range d.edgeY * d.edgeX {
				y, shift := i*d.stride+k/d.edgeX-d.padY, k%d.edgeX-d.padX
				// Results from to to-1 of the row read the plane.
				from, to := (max(0, -shift)+d.stride-1)/d.stride, min(columns, (d.width-1-shift+d.stride)/d.stride)
				if y < 0 || y >= d.height || from >= to {
					continue
				}
				read := plane[y*d.width+from*d.stride+shift : (y+1)*d.width]
				if d.stride > 1 {
					for j := range to - from {
						line[j] = read[j*d.stride]
					}
					read = line
				}
				addFused(out[i*columns+from:i*columns+to], read, kernels[c*d.edgeY*d.edgeX+k])
			}
		}
	}
}

// addFused adds products to dst, each sum rounded once, as the engine's instructions do: products of float32 are exact in float64.
func addFused(dst, x []float32, factor float32) {
	f := float64(factor)
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] = float32(float64(float64(v)*f) + float64(dst[i]))
	}
}

func runDepthwise(p *mnn.Depthwise, in []Tensor, threads int) (Tensor, error) {
	for _, x := range in[:3] {
		if x.Ints != nil {
			return Tensor{}, fmt.Errorf("a convolution of integers: %w", tensor.ErrUnsupported)
		}
	}
	d, err := NewDepthwise(p, in[0].Shape, in[1].Shape, in[2].Shape)
	if err != nil {
		return Tensor{}, err
	}
	out := NewFloats(d.Shape...)
	kernel.Parallel(threads, d.Shape[1], func(lo, hi int) { d.Channels(out.Floats, in[0].Floats, in[1].Floats, in[2].Floats, lo, hi) })
	return out, nil
}
