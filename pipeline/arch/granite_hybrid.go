package arch

import "strings"

// describeGraniteHybrid describes Granite 4: the factors of Granite; layers that layer_types (formerly
// layers_block_type) calls linear_attention, by default all, are [Mamba2] with mamba_n_heads of mamba_d_head,
// mamba_d_state, mamba_n_groups and mamba_d_conv; the others are attention, with rotation if position_embedding_type is
// "rope". The MLP, of shared_intermediate_size, has gate and up in one matrix; with num_local_experts it is the shared
// MLP of their mixture.
func describeGraniteHybrid(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), readRope(c)
	residual := b.graniteFactors(&a)
	position, _ := b.OptString("position_embedding_type")
	if position != "" && position != "rope" && position != "nope" {
		b.Refuse("position_embedding_type", `%s is not supported, only "rope" or "nope"`, show(position))
	}
	b.Only("normalization_function", `"rmsnorm"`)
	b.Inert("init_method")
	m, recurrent := b.mambaKeys(0), b.graniteLayers()
	shared := b.Range("shared_intermediate_size", 1, maxIntermediate, 1024)
	n, k := b.Range("num_local_experts", 0, maxExperts, 8), b.Range("num_experts_per_tok", 0, maxExperts, 2)
	if n > 0 && (k < 1 || k > n) && b.Good("num_local_experts", "num_experts_per_tok") {
		b.Wrong("num_experts_per_tok", "%d of %d experts", k, n)
	}
	b.routerKeys()
	return b.finish(&a, func(i int, p string) Layer {
		var first Block
		if recurrent(i) {
			x := b.mamba2(p+"mamba.", m, m.projBias)
			x.Norm = b.partNorm(p+"mamba.norm", m.inner, m.groups)
			first = x
		} else {
			x := b.projections(p+"self_attn.", a, bias, bias)
			if position == "rope" {
				x.Rope = b.rope(rope, a.HeadDim)
			}
			first = x
		}
		mlp := b.fusedMLP(p+"shared_mlp.input_linear", p+"shared_mlp.output_linear", shared)
		if n == 0 {
			return scaled(residual, b.preNorm(p, first, mlp))
		}
		e := b.graniteExperts(p+"block_sparse_moe.", n, k)
		e.Shared = mlp
		return scaled(residual, b.preNorm(p, first, e))
	})
}

// graniteLayers returns which layers are recurrent.
func (b *builder) graniteLayers() func(i int) bool {
	now, before := b.Has("layer_types"), b.Has("layers_block_type")
	key := "layer_types"
	if !now && before {
		key = "layers_block_type"
	}
	types := b.layerTypesOf(key, fullAttention, linearAttention, "attention", "mamba")
	if now && before {
		b.Inert("layers_block_type") // the former name of the key
	}
	if types == nil {
		return func(int) bool { return true }
	}
	return func(i int) bool { return types[i] == linearAttention || strings.HasPrefix(types[i], "mamba") }
}
