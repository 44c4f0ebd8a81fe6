package arch

// The kinds of attention layers.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// window reads sliding_window: missing if the key is missing, 0 for null, which means no windows. A window of 0 is an
// error.
func (b *builder) window(missing int) int {
	if w, ok := b.OptInt("sliding_window", maxPositions); ok {
		return w
	}
	if b.Null("sliding_window") {
		return 0
	}
	return missing
}

// windows returns the window of every layer, 0 for full attention: layer_types names the layers with a window, or
// slides if there is no such key.
func (b *builder) windows(window int, slides func(layer int) bool) []int {
	types := b.layerTypes(fullAttention, slidingAttention)
	return b.spread(window, func(i int) bool {
		if types != nil {
			return types[i] == slidingAttention
		}
		return slides(i)
	})
}

// spread assigns the window to the layers that slide. A window of at least the declared context is none.
func (b *builder) spread(window int, slides func(layer int) bool) []int {
	out := make([]int, b.layers)
	for i := range out {
		if !slides(i) {
			continue
		}
		if window == 0 {
			if b.Good("sliding_window") {
				b.Wrong("sliding_window", "none, but layer %d slides", i)
			}
			return out
		}
		if window < b.d.MaxPositions {
			out[i] = window
		}
	}
	return out
}

// always is the rule of families whose layers all slide if there is a window.
func always(window int) func(int) bool { return func(int) bool { return window != 0 } }

// everyNth is the rule of families whose n-th, 2n-th and so on layer is full and whose other layers slide.
func everyNth(n int) func(int) bool { return func(i int) bool { return (i+1)%n != 0 } }

// switchedWindows reads the keys of Qwen: with use_sliding_window, the layers from max_window_layers on slide, unless
// layer_types names others. Without it, sliding_window and max_window_layers have no effect.
func (b *builder) switchedWindows() []int {
	from := b.Range("max_window_layers", 0, maxPositions, 28)
	if !b.Bool("use_sliding_window", false) {
		b.Inert("sliding_window")
		return b.windows(0, func(int) bool { return false })
	}
	w := b.window(4096)
	return b.windows(w, func(i int) bool { return w != 0 && i >= from })
}

// sameWindows reads the keys of Qwen3-MoE, whose layers all slide with use_sliding_window.
func (b *builder) sameWindows() []int {
	w := 0
	if b.Bool("use_sliding_window", false) {
		w = b.window(4096)
		if b.Has("max_window_layers") {
			b.Refuse("max_window_layers", "is not supported together with use_sliding_window: it has no effect in this family")
		}
	}
	b.Inert("sliding_window", "max_window_layers")
	return b.spread(w, always(w))
}

// noWindows is for families whose class has none of these keys.
func (b *builder) noWindows() []int {
	b.Only("use_sliding_window", "false")
	b.Inert("sliding_window", "max_window_layers")
	b.layerTypes(fullAttention)
	return make([]int, b.layers)
}
