package arch

import (
	"encoding/json"
	"slices"
)

// describeLlama4Text describes the text model of Llama 4. Rotary pairs are interleaved; with use_qk_norm, every head of
// q and k is normalized after the rotation, without weights. Layers with a 0 in no_rope_layers (every
// no_rope_layer_interval-th if the list is missing or empty) have neither rotation nor these norms; with
// attn_temperature_tuning, their q grows with the position, by attn_scale and floor_scale. Layers of type
// chunked_attention, by default all others, attend only within chunks of attention_chunk_size positions. Layers in
// moe_layers (every interleave_moe_layer_step-th) have experts of intermediate_size, one of which is chosen per token,
// with its input multiplied by the sigmoid of its score, and one for every token; the others have an MLP of
// intermediate_size_mlp. More than one expert per token is rejected.
func describeLlama4Text(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.routerKeys()
	b.Inert("for_llm_compressor", "cache_implementation")
	missing := 128
	if b.Null("head_dim") {
		missing = 0 // hidden_size / num_attention_heads
	}
	a, bias := b.heads(missing), b.Bool("attention_bias", false)
	rope, norm := ropeRules{theta: 500000}.read(c), b.Bool("use_qk_norm", true)
	turns, chunked, sparse := b.llama4Rotating(), b.llama4Chunked(), b.llama4Sparse()
	if chunked == nil {
		chunked = turns
	}
	chunk, _ := b.OptInt("attention_chunk_size", maxPositions)
	if chunk == 0 {
		if chunk = 8192; b.Null("attention_chunk_size") && slices.Contains(chunked, true) {
			b.unsupported("attention_chunk_size", "null is not supported")
		}
	}
	t := b.temperature()
	n := 0
	if len(sparse) > 0 {
		n = b.llama4Experts()
	} else {
		b.Inert("num_experts_per_tok", "num_local_experts", "num_experts")
	}
	dense := b.Range("intermediate_size_mlp", 1, maxIntermediate, 16384)
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		if chunked[i] && chunk < b.d.MaxPositions {
			x.Chunk = chunk
		}
		if !turns[i] {
			x.Temperature = t
		} else {
			x.Rope = b.rope(rope, a.HeadDim)
			b.interleaved(x, bias)
			if norm {
				x.QNorm = &Norm{Gamma: b.ones("model.layers.qk_norm.ones", a.HeadDim), Eps: b.eps}
				x.KNorm, x.NormAfter = x.QNorm, true
			}
		}
		if !slices.Contains(sparse, i) {
			return b.preNorm(p, x, b.mlp(p+"feed_forward.", dense, false))
		}
		return b.preNorm(p, x, &Experts{
			Router: b.linear(p+"feed_forward.router", n, b.d.Hidden, false), Scoring: Sigmoid, TopK: 1, ScaleInput: true,
			Experts: b.experts(p+"feed_forward.experts.", n, b.intermediate, llama4Tensors),
			Shared:  b.mlp(p+"feed_forward.shared_expert.", b.intermediate, false),
		})
	})
}

// llama4Tensors are the names of experts: input-major and stacked.
var llama4Tensors = expertTensors{
	Gate: "gate_proj", Up: "up_proj", Down: "down_proj", GateUp: "gate_up_proj", StackedDown: "down_proj", InputMajor: true,
}

// llama4Rotating returns which layers have rotation.
func (b *builder) llama4Rotating() []bool {
	list := b.Ints("no_rope_layers", 0, 1)
	interval := b.Range("no_rope_layer_interval", 1, maxLayers, 4)
	if len(list) > 0 && len(list) != b.layers && b.Good("num_hidden_layers") {
		b.Wrong("no_rope_layers", "%d entries for %d layers", len(list), b.layers)
		list = nil
	}
	out := make([]bool, b.layers)
	for i := range out {
		out[i] = (i+1)%interval != 0
		if len(list) > 0 {
			out[i] = list[i] == 1
		}
	}
	return out
}

// llama4Chunked returns which layers have chunks, nil if the file does not say.
func (b *builder) llama4Chunked() []bool {
	var out []bool
	for _, t := range b.layerTypes("chunked_attention", fullAttention) {
		out = append(out, t == "chunked_attention")
	}
	return out
}

// llama4Experts reads the number of experts.
func (b *builder) llama4Experts() int {
	n, k := b.expertKeys("num_experts_per_tok", 1, 16, "num_local_experts", "num_experts")
	if k != 1 && b.Good("num_experts_per_tok") {
		b.unsupported("num_experts_per_tok", "%d is not supported, only 1: scores multiply the inputs of experts", k)
	}
	return n
}

// llama4Sparse lists the layers with experts. If the file lists them, the step between them may be 0, as in
// MobileLLM-R1, which has none.
func (b *builder) llama4Sparse() []int {
	const key = "interleave_moe_layer_step"
	list, listed := b.Ints("moe_layers", 0, maxLayers), b.Has("moe_layers")
	step := b.Range(key, 0, maxLayers, 1)
	if listed {
		return list
	}
	if step == 0 {
		b.Wrong(key, "0, and there is no moe_layers")
		return nil
	}
	for i := step - 1; i < b.layers; i += step {
		list = append(list, i)
	}
	return list
}

// temperature reads attn_temperature_tuning, which is a number in the first published files.
func (b *builder) temperature() *Temperature {
	t := &Temperature{Floor: b.number("floor_scale", 1, maxPositions, 8192), Scale: b.number("attn_scale", 0, 1e3, 0.1), Offset: 1}
	const key = "attn_temperature_tuning"
	var on bool
	if _, number := b.fields.values[key].(json.Number); number {
		on = b.Range(key, 0, 1<<20, 1) != 0
	} else {
		on = b.Bool(key, true)
	}
	if !on {
		return nil
	}
	return t
}
