package arch

// describeCohere2 describes Command R7B and Command A: Cohere in which every sliding_window_pattern-th layer, or
// those that layer_types names, has full attention without rotation; the others have a sliding window.
func describeCohere2(c *Config) (*Decoder, error) {
	b := beginCohere(c)
	// Keys of published files that the class does not read: the training framework's names for the behaviour of the
	// class.
	b.Only("order_of_interleaved_layers", `"local_attn_first"`)
	b.Only("use_qk_norm", "false")
	b.Only("position_embedding_type", `"rope_gptj"`)
	for _, key := range []string{"use_embedding_sharing", "use_gated_activation", "use_parallel_block"} {
		b.Only(key, "true")
	}
	b.same(1, "rotary_pct")
	b.Inert("cache_implementation", "use_parallel_embedding")
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), readRope(c)
	if b.Null("sliding_window") {
		b.unsupported("sliding_window", "null is not supported: no layer would rotate")
	}
	window := b.window(4096)
	pattern := b.Range("sliding_window_pattern", 1, maxLayers, 4)
	if n := b.Range("layer_switch", 1, maxLayers, pattern); n != pattern && b.Good("layer_switch", "sliding_window_pattern") {
		b.Wrong("layer_switch", "%d contradicts a sliding_window_pattern of %d", n, pattern)
	}
	slides := b.slides(everyNth(pattern))
	windows := b.spread(window, slides)
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		if x.Window = windows[i]; slides(i) {
			x.Rope = b.rope(rope, a.HeadDim)
			b.interleaved(x, bias)
		}
		return sameNorm(b.norms(p+"input_layernorm"), x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}

// slides returns for every layer whether its attention has a sliding window, from layer_types, or missing if there is
// no such key.
func (b *builder) slides(missing func(int) bool) func(layer int) bool {
	types := b.layerTypes(fullAttention, slidingAttention)
	if types == nil {
		return missing
	}
	return func(i int) bool { return types[i] == slidingAttention }
}
