package arch

import "math"

// describeFalconH1 describes FalconH1, which has a parallel Mamba 2 block and attention in every layer, with a common
// norm, and multipliers everywhere:
//
//	h = embedding_multiplier · Embedding[token];  logits = lm_head_multiplier · Head · FinalNorm(h)
//	h += ssm_out_multiplier · Mamba(n) + attention_out_multiplier · Attention(attention_in_multiplier · n)
//	k is multiplied by key_multiplier; the MLP is mlp_multipliers[1] · Down(silu(mlp_multipliers[0] · Gate n) * Up n)
//	z, x, b, c and dt are multiplied by ssm_multipliers, their input by ssm_in_multiplier
//
// Those of attention are folded into the scale of its scores and that of the branch. None is folded into a matrix,
// whose elements would then not fit fp16. A norm of the Mamba block (mamba_rms_norm) must follow its gate
// (mamba_norm_before_gate false).
func describeFalconH1(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.finalNorm = b.prefix + "final_layernorm"
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.Only("attn_layer_indices")
	b.Only("mamba_use_mlp", "true")
	b.Inert("conv_kernel", "mlp_expansion_factor", "time_step_floor", "time_step_max", "time_step_min", "time_step_rank")
	a, bias, mlpBias := b.heads(0), b.Bool("attention_bias", false), b.Bool("mlp_bias", false)
	rope := readRope(c)
	inner, _ := b.OptInt("mamba_d_ssm", maxIntermediate)
	if !b.Has("mamba_d_ssm") && !b.Null("mamba_d_ssm") {
		inner = 1024
	}
	m := b.mambaKeys(inner)
	outBias, norm := b.Bool("projectors_bias", false), b.Bool("mamba_rms_norm", false)
	if b.Bool("mamba_norm_before_gate", true) && norm {
		b.unsupported("mamba_norm_before_gate", "true is not supported together with mamba_rms_norm true")
	}
	b.d.EmbeddingScale, b.d.LogitScale = b.multiplier("embedding_multiplier"), b.multiplier("lm_head_multiplier")
	in, key := b.multiplier("attention_in_multiplier"), b.multiplier("key_multiplier")
	if bias && in != 1 {
		b.unsupported("attention_in_multiplier", "%g is not supported together with attention_bias true", in)
	}
	a.Scale = in * in * key / math.Sqrt(float64(a.HeadDim))
	attentionOut, mambaOut := in*b.multiplier("attention_out_multiplier"), b.multiplier("ssm_out_multiplier")
	mlp := b.multipliers("mlp_multipliers", 2)
	mamba, biases := b.multipliers("ssm_multipliers", 5), b.multiplier("ssm_in_multiplier")
	if m.projBias && biases != 1 {
		b.unsupported("ssm_in_multiplier", "%g is not supported together with mamba_proj_bias true", biases)
	}
	scales := [5]float64{}
	for i := range mamba {
		scales[i] = mamba[i] * biases
	}
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		s := b.mamba2(p+"mamba.", m, outBias)
		s.Scales = scales
		if norm {
			s.Norm = b.partNorm(p+"mamba.norm", m.inner, m.groups)
		}
		f := b.mlp(p+"feed_forward.", b.intermediate, mlpBias)
		f.GateScale = mlp[0]
		n := b.norms(p + "input_layernorm")
		return Layer{
			{Norm: n, Block: s, Scale: mambaOut},
			{Parallel: true, Norm: n, Block: x, Scale: attentionOut},
			{Norm: b.norms(p + "pre_ff_layernorm"), Block: f, Scale: mlp[1]},
		}
	})
}

// The bounds of multipliers exclude 0, which would remove what they multiply.
const (
	minMultiplier = 1e-9
	maxMultiplier = 1e9
)

// multiplier reads a factor, by default 1.
func (b *builder) multiplier(key string) float64 {
	if f, ok := b.OptFloat(key, minMultiplier, maxMultiplier); ok {
		return f
	}
	return 1
}

// multipliers reads n factors, by default 1.
func (b *builder) multipliers(key string, n int) []float64 {
	list := b.Floats(key, minMultiplier, maxMultiplier)
	if list != nil && len(list) != n {
		b.Wrong(key, "%d numbers, want %d", len(list), n)
		list = nil
	}
	for len(list) < n {
		list = append(list, 1)
	}
	return list
}
