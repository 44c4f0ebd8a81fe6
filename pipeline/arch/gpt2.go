package arch

import (
	"math"
	"regexp"
)

// describeGPT2 describes GPT-2 and models trained with its code: a vector for every position instead of rotation,
// LayerNorms with biases, matrices whose rows are inputs (Conv1D), q, k and v adjacent in one of them, and an ungated
// MLP of n_inner, by default 4·n_embd. Scores are divided by the root of the head's size unless scale_attn_weights is
// false, and with scale_attn_by_inverse_layer_idx by the number of the layer, from 1 on. Names of tensors may begin
// with "transformer.h.0..." or "h.0...".
func describeGPT2(c *Config) (*Decoder, error) {
	b := &builder{Config: c, d: &Decoder{Vocab: c.Int("vocab_size", maxVocab)}, centered: true, normBias: true}
	b.d.Hidden = b.either("n_embd", "hidden_size", maxHidden)
	b.layers = b.either("n_layer", "num_hidden_layers", maxLayers)
	b.d.MaxPositions = b.either("n_positions", "max_position_embeddings", maxPositions)
	b.eps = b.number("layer_norm_epsilon", 1e-30, 1, 1e-5)
	b.tied(true)
	var ok bool
	if b.intermediate, ok = b.OptInt("n_inner", maxIntermediate); !ok {
		b.intermediate = 4 * b.d.Hidden
	}
	b.ungatedKeys("activation_function", GELUTanh)
	heads := "n_head"
	if !b.Has(heads) {
		heads = "num_attention_heads"
	} else {
		b.sameInt(heads, "num_attention_heads", maxHeads)
	}
	a := b.unshared(heads)
	byHead, byLayer := b.Bool("scale_attn_weights", true), b.Bool("scale_attn_by_inverse_layer_idx", false)
	// The order of products (reorder_and_upcast_attn), the size of a buffer, and heads for other purposes.
	b.Inert("attn_pdrop", "embd_pdrop", "gradient_checkpointing", "n_ctx", "reorder_and_upcast_attn", "resid_pdrop",
		"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj")
	root := b.base("transformer.", "wte")
	b.prefix, b.embedding, b.finalNorm, b.head = root, root+"wte", root+"ln_f", "lm_head"
	b.skip("mask buffer", false, `^`+regexp.QuoteMeta(root)+`h\.\d+\.attn\.(masked_)?bias$`)
	b.d.Positions = Weight{root + "wpe.weight", b.d.MaxPositions, b.d.Hidden}
	return b.finish(&a, func(i int, p string) Layer {
		p = shortName(p)
		x := a
		if !byHead || byLayer {
			x.Scale = 1
		}
		if byHead && byLayer {
			x.Scale /= math.Sqrt(float64(a.HeadDim))
		}
		if byLayer {
			x.Scale /= float64(i + 1)
		}
		hidden, fused := b.d.Hidden, p+"attn.c_attn"
		x.Q, x.K = b.inputRows(fused, ".q", hidden, hidden, 0), b.inputRows(fused, ".k", hidden, hidden, hidden)
		x.V = b.inputRows(fused, ".v", hidden, hidden, 2*hidden)
		x.O = b.inputRows(p+"attn.c_proj", ".turned", hidden, hidden, 0)
		mlp := &MLP{
			Intermediate: b.intermediate, Activation: b.activation,
			Up:   b.inputRows(p+"mlp.c_fc", ".turned", b.intermediate, hidden, 0),
			Down: b.inputRows(p+"mlp.c_proj", ".turned", hidden, b.intermediate, 0),
		}
		return Layer{{Norm: b.norms(p + "ln_1"), Block: &x}, {Norm: b.norms(p + "ln_2"), Block: mlp}}
	})
}

// inputRows returns a linear layer with a bias, made of rows outputs from first on of a matrix whose rows are inputs.
func (b *builder) inputRows(of, what string, rows, cols, first int) Linear {
	runs := []Run{{Start: first, Count: rows}}
	weight := View{Name: of + what + ".weight", Tensor: of + ".weight", Rows: rows, Cols: cols, Runs: runs, Transposed: true}
	return Linear{
		Weight: b.view(weight),
		Bias:   b.view(View{Name: of + what + ".bias", Tensor: of + ".bias", Rows: rows, Runs: runs}),
	}
}
