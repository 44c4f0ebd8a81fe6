package arch

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Plain is a layer of the common form, the one that calibration knows:
//
//	h += Attention(AttentionNorm(h)); h += MLP(MLPNorm(h))
//
// with RMSNorm, one rotary table, full causal attention and a gated MLP with SiLU.
type Plain struct {
	AttentionNorm *Norm
	Attention     *Attention
	MLPNorm       *Norm
	MLP           *MLP
}

// Plain gives a layer of a decoder that [Decoder.CheckPlain] accepts.
func (d *Decoder) Plain(i int) Plain {
	p, err := plain(d.Layers[i])
	if err != nil {
		panic("internal error: layer " + layerName(i) + ": " + err.Error())
	}
	return p
}

// CheckPlain refuses, with tensor.ErrUnsupported, a decoder that is not made of plain layers, and says what is different.
func (d *Decoder) CheckPlain() error {
	var what string
	switch {
	case d.EmbeddingScale != 0 || d.EmbeddingNorm != nil:
		what = "scaled or normalised embeddings"
	case d.LogitScale != 0 || d.LogitCap != 0:
		what = "scaled or capped logits"
	case d.FinalNorm.Centered:
		what = "LayerNorm"
	case len(d.Ropes) != 1:
		what = fmt.Sprintf("%d rotary tables", len(d.Ropes))
	case d.Ropes[0].Scale != 1 || d.Ropes[0].Long != nil:
		what = d.Ropes[0].Type + " rotation"
	}
	if what != "" {
		return fmt.Errorf("%s: %w", what, tensor.ErrUnsupported)
	}
	for i, l := range d.Layers {
		if _, err := plain(l); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

func plain(l Layer) (Plain, error) {
	refuse := func(what string) (Plain, error) { return Plain{}, fmt.Errorf("%s: %w", what, tensor.ErrUnsupported) }
	if len(l) != 2 {
		return refuse(fmt.Sprintf("%d branches", len(l)))
	}
	for _, b := range l {
		switch {
		case b.Parallel:
			return refuse("parallel branches")
		case b.Norm == nil || b.PostNorm != nil:
			return refuse("norms behind the blocks")
		case b.Norm.Centered:
			return refuse("LayerNorm")
		case b.Scale != 0:
			return refuse("scaled branches")
		}
	}
	a, ok := l[0].Block.(*Attention)
	if !ok {
		return refuse("no attention")
	}
	m, ok := l[1].Block.(*MLP)
	if !ok {
		return refuse("no MLP")
	}
	// The norm of a whole projection is longer than a head.
	head := func(n *Norm) bool { return n == nil || n.Gamma.Rows <= a.HeadDim && !n.Centered }
	switch {
	case a.Rope == nil:
		return refuse("attention without rotation")
	case a.NormAfter || !head(a.QNorm) || !head(a.KNorm) || a.OutNorm != nil:
		return refuse("norms within attention of another kind")
	case a.Window != 0 || a.Chunk != 0:
		return refuse("attention to a part of the positions")
	case a.Scale != 0 || a.Cap != 0 || a.Slopes != nil || a.Sinks.Tensor != "" || a.Gate.Weight.Tensor != "" || a.Temperature != nil:
		return refuse("attention scores of another kind")
	case m.Activation != SiLU || m.Gate.Weight.Tensor == "" || m.Norm != nil:
		return refuse("an MLP of another kind")
	}
	return Plain{l[0].Norm, a, l[1].Norm, m}, nil
}
