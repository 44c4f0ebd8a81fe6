package forward

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// newConformer is [NewEar] for an ear with Subsampling.
func newConformer(e *arch.Ear, src tensor.Source, threads int) (*Ear, error) {
	s := e.Subsampling
	if e.Mels < 1 || e.Frames < 1 || e.Piece != 0 || e.Positions.Tensor != "" || len(s.Convolutions) == 0 {
		return nil, fmt.Errorf("%d features of at most %d frames, pieces of %d, %d convolutions: %w",
			e.Mels, e.Frames, e.Piece, len(s.Convolutions), tensor.ErrCorrupt)
	}
	m := unchecked(&arch.Decoder{Hidden: e.Hidden, Layers: e.Layers}, src, threads)
	channels := 1
	for i := range s.Convolutions {
		if err := m.checkConvolution(&s.Convolutions[i], channels); err != nil {
			return nil, err
		}
		channels = s.Convolutions[i].Weight.Rows
	}
	err := cmp.Or(
		m.checkLinear("states", &s.Out, e.Hidden, channels*s.Size(e.Mels)),
		m.checkNorm("norm after the layers", e.PostNorm, e.Hidden),
		m.checkNorm("norm in the projector", e.BetweenNorm, e.Between.Weight.Rows),
		m.checkLinear("projector, first layer", &e.Between, e.Between.Weight.Rows, e.Hidden),
		m.checkLinear("projector", &e.Out, e.Out.Weight.Rows, e.Between.Weight.Rows),
		m.checkLayers(),
	)
	if err != nil {
		return nil, err
	}
	return &Ear{outer{pass: m}, e}, nil
}

// subsampled returns the states of a clip before the layers, of an ear with Subsampling.
func (e *Ear) subsampled(ctx context.Context, features []float32) ([]float32, error) {
	d := e.ear
	s, n := d.Subsampling, len(features)/d.Mels
	x := plane{make([]float32, (n+1)*d.Mels), n + 1, d.Mels} // with a frame of zeros at the end
	for i, v := range features {
		x.rows[i%n*d.Mels+i/n] = v
	}
	if s.LastTwice {
		copy(x.rows[n*d.Mels:], x.rows[(n-1)*d.Mels:])
	}
	for i := range s.Convolutions {
		if err := e.convolve(ctx, &x, &s.Convolutions[i]); err != nil {
			return nil, err
		}
	}
	y := x.rows
	if !s.ByFeature {
		y = make([]float32, len(x.rows)) // of each state, [channel, feature]
		channels := len(x.rows) / (x.height * x.width)
		for i, v := range x.rows {
			place, channel := i/channels, i%channels
			y[place/x.width*x.width*channels+channel*x.width+place%x.width] = v
		}
	}
	y, err := e.product(ctx, y, &s.Out)
	if err == nil {
		e.pass.scaleAll(y, s.Scale)
	}
	return y, err
}

// before groups the linear layers before the layers by what they read.
func (e *Ear) before() (groups [][]*arch.Linear) {
	s := e.ear.Subsampling
	if s == nil {
		return [][]*arch.Linear{{&e.ear.First}, {&e.ear.Second}}
	}
	for i := range s.Convolutions {
		if c := &s.Convolutions[i]; !c.Each {
			groups = append(groups, []*arch.Linear{&c.Linear})
		}
	}
	return append(groups, []*arch.Linear{&s.Out})
}
