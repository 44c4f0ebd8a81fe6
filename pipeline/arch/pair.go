package arch

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Pair is a layer of two branches, one behind the other, the one that calibration knows:
//
//	h += AttentionScale · AttentionPostNorm(Attention(AttentionNorm(h)))
//	h += MLPScale · MLPPostNorm(MLP(MLPNorm(h)))
type Pair struct {
	AttentionNorm, AttentionPostNorm *Norm // or nil
	AttentionScale                   float64
	Attention                        *Attention
	MLPNorm, MLPPostNorm             *Norm // or nil
	MLPScale                         float64
	MLP                              *MLP
}

// Pair gives a layer of a decoder that [Decoder.CheckPairs] accepts.
func (d *Decoder) Pair(i int) Pair {
	p, err := pair(d.Layers[i])
	if err != nil {
		panic("internal error: layer " + layerName(i) + ": " + err.Error())
	}
	return p
}

// CheckPairs refuses, with tensor.ErrUnsupported, a decoder that calibration does not know, and says what is different:
// its layers are pairs of attention and an MLP, without attention sinks, attention temperature, norms in parts, norms of values,
// factors of the stream and ClampedSwiGLU.
func (d *Decoder) CheckPairs() error {
	for i, l := range d.Layers {
		if _, err := pair(l); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

func pair(l Layer) (Pair, error) {
	refuse := func(what string) (Pair, error) { return Pair{}, fmt.Errorf("%s: %w", what, tensor.ErrUnsupported) }
	if len(l) != 2 {
		return refuse(fmt.Sprintf("%d branches", len(l)))
	}
	if l[0].Parallel || l[1].Parallel {
		return refuse("parallel branches")
	}
	a, ok := l[0].Block.(*Attention)
	if !ok {
		return refuse("no attention")
	}
	m, ok := l[1].Block.(*MLP)
	switch {
	case !ok:
		return refuse("no MLP")
	case a.Sinks.Tensor != "":
		return refuse("attention sinks")
	case a.Temperature != nil:
		return refuse("attention temperature")
	case parted(a.QNorm, a.KNorm, a.OutNorm, m.Norm, l[0].Norm, l[0].PostNorm, l[1].Norm, l[1].PostNorm):
		return refuse("norms in parts with gains of their own")
	case a.V.Weight.Tensor == "" || a.VNorm != nil:
		return refuse("values that are keys or have a norm")
	case l[0].Gain.Tensor != "" || l[1].Gain.Tensor != "":
		return refuse("a factor of the stream")
	case m.Activation == ClampedSwiGLU:
		return refuse("an MLP of another kind")
	}
	return Pair{l[0].Norm, l[0].PostNorm, l[0].Scale, a, l[1].Norm, l[1].PostNorm, l[1].Scale, m}, nil
}

// parted reports whether any of some norms, each of which may be nil, is one of [Norm.Parts].
func parted(norms ...*Norm) bool {
	return slices.ContainsFunc(norms, func(n *Norm) bool { return n != nil && n.Parts > 1 })
}
