package arch

import (
	"math"
	"strconv"
)

// usmFrames is how many frames the engine makes of the 30 s that the library reads.
const usmFrames = 2998

// gemma4Ear describes the encoder of sound of Gemma 4, that of the Universal Speech Model: convolutions that leave a state for each 40 ms,
// layers of a Conformer whose states attend to those near them, and a projector like that of pictures. It returns nil for a model without one.
func gemma4Ear(c *Config, width int) *hearing {
	c.Inert("vision_soft_tokens_per_image")
	h := &hearing{Config: c.Object("audio_config"), outer: c, prefix: "model.audio_tower."}
	if h.Config == nil {
		return nil
	}
	for key, n := range map[string]int{
		"hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8, "conv_kernel_size": 5, "attention_chunk_size": 12,
		"attention_context_left": 13, "output_proj_dims": 1536,
	} {
		h.provide(key, n)
	}
	const hidden, proj = "hidden_size", "output_proj_dims"
	e := &Ear{
		ModelType: "gemma4_audio", Features: USMFeatures, Hidden: h.Int(hidden, maxHidden), Mels: 128, Frames: usmFrames,
		Pad: c.tokenID("audio_token_id", "audio_token_index", 258881), Start: "<|audio>", End: "<audio|>",
	}
	e.Before, e.After = e.Start, e.End
	h.e, h.eps = e, 1e-6
	h.Only("model_type", `"gemma4_audio"`)
	h.Inert("architectures", "initializer_range")
	if h.Has("rms_norm_eps") {
		h.eps = h.Float("rms_norm_eps", 1e-30, 1)
	}
	if e.Hidden%2 != 0 || e.Hidden < 4 {
		h.Wrong(hidden, "%d is not an even number from 4 on, as sinusoids need", e.Hidden)
		e.Hidden = 4
	}
	// Bounds of states that no state reaches, and what stands for minus infinity: other values would change results.
	h.least("gradient_clipping", 1e10)
	if f, ok := h.OptFloat("attention_invalid_logits_value", -math.MaxFloat32, math.MaxFloat32); ok && f > -1e9 {
		h.unsupported("attention_invalid_logits_value", "%g is not supported, only -1e9 and below", f)
	}
	h.clipped = h.Bool("use_clipped_linears", true)
	h.gemma4States()
	h.gemma4Layers()
	n := h.Int(proj, maxHidden)
	e.Between = linearOf(h.prefix+"output_proj", n, e.Hidden, true)
	e.BetweenNorm = &Norm{Gamma: h.view(View{Name: "model.embed_audio.embedding_pre_projection_norm.ones", Rows: n}), Eps: h.eps}
	e.Out = linearOf("model.embed_audio.embedding_projection", width, n, false)
	return h.finish()
}

// least refuses numbers below least.
func (c *Config) least(key string, least float64) {
	if f, ok := c.OptFloat(key, -math.MaxFloat64, math.MaxFloat64); ok && f < least {
		c.unsupported(key, "%g is not supported, only %g and above", f, least)
	}
}

// gemma4States describes what makes states of features: two convolutions with steps of 2, each with a norm of its channels.
func (h *hearing) gemma4States() {
	const key = "subsampling_conv_channels"
	channels := []int{128, 32}
	if h.Has(key) {
		if channels = h.Ints(key, 1, maxHidden); len(channels) != 2 {
			if h.Good(key) {
				h.Wrong(key, "%d numbers instead of 2", len(channels))
			}
			channels = []int{128, 32}
		}
	}
	e, p := h.e, h.prefix+"subsample_conv_projection."
	s := &Subsampling{LastTwice: true, ByFeature: true}
	in := 1
	for i, n := range channels {
		name := p + "layer" + strconv.Itoa(i) + "."
		kernels := View{Name: name + "conv.matrix", Tensor: name + "conv.weight", Rows: n, Cols: 9 * in, Flat: true}
		if in > 1 {
			kernels.Map = ChannelsLast
		}
		s.Convolutions = append(s.Convolutions, Convolution{
			Linear: Linear{Weight: h.view(kernels)},
			In:     in, Kernel: 3, Stride: 2, ChannelsLast: true, Activation: ReLU,
			Norm: &Norm{Gamma: Weight{Tensor: name + "norm.weight", Rows: n}, Eps: h.eps, Centered: true},
		})
		in = n
	}
	// The library counts features by the channels of the first convolution.
	if features := s.Size(e.Mels); channels[0]/4 != features && h.Good(key) {
		h.Wrong(key, "%d channels of the first convolution: a quarter of them is not the %d features that are left", channels[0], features)
	}
	s.Out = linearOf(p+"input_proj_linear", e.Hidden, channels[1]*s.Size(e.Mels), false)
	e.Subsampling = s
}

// gemma4Layers describes the layers: a part of an MLP, attention to near states, a convolution, a part of an MLP, and a norm.
func (h *hearing) gemma4Layers() {
	e := h.e
	n, heads := e.Hidden, h.Int("num_attention_heads", maxHeads)
	if n%heads != 0 {
		h.Wrong("num_attention_heads", "hidden_size %d is not divisible by %d heads", n, heads)
		heads = 1
	}
	near := h.gemma4Near(heads)
	taps := h.Range("conv_kernel_size", 1, maxKernel, 5)
	h.Only("hidden_act", `"silu"`)
	weight := 0.5
	if h.Has("residual_weight") {
		weight = h.Float("residual_weight", 1e-30, 1e30)
	}
	norm := func(name string, eps float64) *Norm {
		return &Norm{Gamma: Weight{Tensor: name + ".weight", Rows: n}, Eps: eps}
	}
	matrix := func(name string, rows, cols int) Linear {
		return bounded(h.view, h.clipped, name, linearOf(name+".linear", rows, cols, false))
	}
	for i := range h.Int("num_hidden_layers", maxLayers) {
		p := h.prefix + "layers." + strconv.Itoa(i) + "."
		forward := func(k string) Branch {
			at := p + "feed_forward" + k + "."
			return Branch{Norm: norm(at+"pre_layer_norm", 1e-6), PostNorm: norm(at+"post_layer_norm", 1e-6), Scale: weight, Block: &MLP{
				Intermediate: 4 * n, Activation: SiLU, Up: matrix(at+"ffw_layer_1", 4*n, n), Down: matrix(at+"ffw_layer_2", n, 4*n),
			}}
		}
		at, attend := p+"self_attn.", near
		attend.Q, attend.K, attend.V, attend.O = matrix(at+"q_proj", n, n), matrix(at+"k_proj", n, n), matrix(at+"v_proj", n, n), matrix(at+"post", n, n)
		attend.Keys = linearOf(at+"relative_k_proj", n, n, false)
		attend.Gains = h.view(View{Name: at + "gains", Tensor: at + "per_dim_scale", Rows: near.HeadDim, Map: Softplus, Runs: []Run{{
			Count: near.HeadDim, Scale: 1 / (math.Sqrt(float64(near.HeadDim)) * math.Ln2),
		}}})
		conv := p + "lconv1d."
		last := forward("2")
		last.SumNorm = norm(p+"norm_out", 1e-6)
		e.Layers = append(e.Layers, Layer{
			forward("1"),
			{Norm: norm(p+"norm_pre_attn", 1e-6), Block: &attend, PostNorm: norm(p+"norm_post_attn", 1e-6)},
			{Norm: norm(conv+"pre_layer_norm", h.eps), Block: &GatedConv{
				In: matrix(conv+"linear_start", 2*n, n), Causal: true, Norm: norm(conv+"conv_norm", h.eps), Out: matrix(conv+"linear_end", n, n),
				Kernel: h.flat(conv+"depthwise_conv1d.weight", n, taps),
			}},
			last,
		})
	}
}

// gemma4Near describes what a state attends to. The library computes attention in pieces; of them only the distance that the first vector
// stands for remains, which is the true one in published models.
func (h *hearing) gemma4Near(heads int) NearAttention {
	const left, right, piece, limit = "attention_context_left", "attention_context_right", "attention_chunk_size", "attention_logit_cap"
	most := maxPatches
	before, after := h.Int(left, most), h.Range(right, 0, most, 0)
	if before < 2 {
		h.unsupported(left, "%d is not supported: a state would not attend to itself", before)
		before = 2
	}
	a := NearAttention{
		Heads: heads, HeadDim: h.e.Hidden / heads, KeyScale: math.Log(1+math.E) / math.Ln2, Cap: 50, Past: before - 2, Future: max(after-1, 0),
	}
	a.Shift = (h.Int(piece, most)+before-1+after)/2 - (before - 1)
	if h.Has(limit) {
		a.Cap = h.Float(limit, 1e-30, 1e30)
	}
	return a
}
