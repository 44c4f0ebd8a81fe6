package calibrate

import "github.com/llmexport/llmexport/pipeline/arch"

// pair is a layer of attention and then an MLP.
type pair struct {
	AttentionNorm, MLPNorm *arch.Norm
	Attention              *arch.Attention
	MLP                    *arch.MLP
}

func pairOf(d *arch.Decoder, i int) pair {
	l := d.Layers[i]
	return pair{l[0].Norm, l[1].Norm, l[0].Block.(*arch.Attention), l[1].Block.(*arch.MLP)}
}
