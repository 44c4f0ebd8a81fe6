package arch

import (
	"math"
	"math/bits"
	"regexp"
	"strconv"
)

// conformerFrames is how many frames of a clip are read, 120 s: the graph has a table of all distances between its states. The library has no bound.
const conformerFrames = 12000

// maxKernel bounds the taps of a convolution.
const maxKernel = 63

// lfm2AudioPad is the word <|reserved_6|> of the published tokenizers, which no text has. The library has no word for a clip.
const lfm2AudioPad = 16

// speechTensors are those that make speech.
const speechTensors = `^(audio_embedding|depthformer|depth_linear|depth_embeddings)\.|^(codebook_offsets|audio_loss_weights)$`

// lfm2AudioEar describes the encoder of sound of LFM2-Audio, NVIDIA's FastConformer in the words of NeMo, and the MLP after it.
func lfm2AudioEar(c *Config, width int) *hearing {
	c.Inert("codebooks", "codebook_weight", "depthformer", "interleaved_n_audio", "interleaved_n_text", "semantic_codebook_factor", "tie_audio_embeddings",
		"audio_loss_multiplier", "text_loss_multiplier")
	c.note("answers are text: the parts that speak (depthformer and the audio codec) are left out, because the engine has no program for them")
	c.nemoFeatures()
	h := &hearing{Config: c.Object("encoder"), outer: c, prefix: "conformer."}
	if h.Config == nil {
		c.missing("encoder")
		return nil
	}
	e := &Ear{
		ModelType: "lfm2_audio", Features: ConformerFeatures, Hidden: h.Int("d_model", maxHidden), Mels: h.Int("feat_in", maxHidden),
		Frames: conformerFrames, Pad: lfm2AudioPad, Subsampling: &Subsampling{},
	}
	h.e = e
	h.Only("feat_in", engineMels)
	h.Only("feat_out", "-1", strconv.Itoa(e.Hidden))
	h.Only("subsampling", `"dw_striding"`)
	h.Only("causal_downsampling", "false")
	h.Only("reduction")
	h.Only("self_attention_model", `"rel_pos"`)
	h.wholeClip("att_context_size")
	h.Only("untie_biases", "true")
	h.Only("conv_norm_type", `"batch_norm"`)
	h.Only("conv_context_size")
	h.Inert("reduction_position", "reduction_factor", "pos_emb_max_len", "dropout", "dropout_pre_encoder", "dropout_emb", "dropout_att")
	if e.Hidden%2 != 0 && h.Good("d_model") {
		h.Wrong("d_model", "%d is odd, but positions are pairs of sines and cosines", e.Hidden)
	}
	if h.Bool("xscaling", true) {
		e.Subsampling.Scale = math.Sqrt(float64(e.Hidden))
	}
	h.subsample()
	h.conformerLayers()
	p := "audio_adapter.model."
	e.PostNorm = h.norm(p + "0")
	e.Between, e.Out = linearOf(p+"1", width, e.Hidden, true), linearOf(p+"3", width, width, true)
	h.skips = append(h.skips,
		Skip{Match: regexp.MustCompile(`^conformer\.layers\.[0-9]+\.conv\.batch_norm\.num_batches_tracked$`), Reason: "not used by the encoder of sound"},
		Skip{Match: regexp.MustCompile(speechTensors), Reason: "speech", Warn: true})
	return h.finish()
}

// wholeClip refuses the value of a key by which a state does not attend to all: a pair, or a list of them, of which the first is used.
func (h *hearing) wholeClip(key string) {
	v := h.take(key)
	if v == nil {
		return
	}
	pairs, ok := v.([]any)
	if ok && len(pairs) > 0 {
		if first, nested := pairs[0].([]any); nested {
			pairs = first
		}
	}
	if !ok || len(pairs) != 2 {
		h.Wrong(key, "is not a pair of numbers")
		return
	}
	for _, n := range pairs {
		if show(n) != "-1" {
			h.Refuse(key, "%s is not supported, only -1", show(n))
			return
		}
	}
}

// nemoFeatures refuses features other than those that the engine computes.
func (c *Config) nemoFeatures() {
	p := c.Object("preprocessor")
	if p == nil {
		c.missing("preprocessor")
		return
	}
	for key, value := range map[string]string{
		"sample_rate": "16000", "normalize": `"per_feature"`, "window_size": "0.025", "window_stride": "0.01", "window": `"hann"`, "features": engineMels,
		"n_fft": "512", "log": "true", "frame_splicing": "1", "pad_to": "0",
	} {
		p.Only(key, value)
	}
	p.Only("pad_value", "0.0", "0")
	p.Inert("dither") // of training
	p.checkInert()
}

// subsample describes what makes states of features.
func (h *hearing) subsample() {
	const factor, channels = "subsampling_factor", "subsampling_conv_channels"
	s, n := h.e.Subsampling, h.Range(factor, 2, 64, 8)
	if n&(n-1) != 0 && h.Good(factor) {
		h.unsupported(factor, "%d is not supported, only powers of 2", n)
	}
	width := h.Range(channels, -1, maxHidden, -1)
	if width == 0 && h.Good(channels) {
		h.Wrong(channels, "0 is not a number of channels")
	}
	if width < 1 {
		width = h.e.Hidden
	}
	add := func(i, in, kernel, stride int, each bool, act Activation) {
		name, cols := h.prefix+"pre_encode.conv."+strconv.Itoa(i), kernel*kernel
		if !each {
			cols *= in
		}
		s.Convolutions = append(s.Convolutions, Convolution{
			Linear: Linear{
				Weight: h.view(View{Name: name + ".matrix", Tensor: name + ".weight", Rows: width, Cols: cols, Flat: true}),
				Bias:   Weight{Tensor: name + ".bias", Rows: width},
			},
			In: in, Kernel: kernel, Stride: stride, Each: each, Activation: act,
		})
	}
	add(0, 1, 3, 2, false, ReLU)
	for i := range bits.Len(uint(n)) - 2 {
		add(3*i+2, width, 3, 2, true, "")
		add(3*i+3, width, 1, 1, false, ReLU)
	}
	s.Out = linearOf(h.prefix+"pre_encode.out", h.e.Hidden, width*s.Size(h.e.Mels), true)
}

// conformerLayers describes the layers: half an MLP, attention, a convolution, half an MLP, and a norm.
func (h *hearing) conformerLayers() {
	e := h.e
	heads, inner := h.Int("n_heads", maxHeads), h.Int("ff_expansion_factor", maxIntermediate)*e.Hidden
	if e.Hidden%heads != 0 && h.Good("d_model", "n_heads") {
		h.Wrong("n_heads", "d_model %d is not divisible by %d heads", e.Hidden, heads)
	}
	// The vectors of heads are rows of a matrix, which is read as one vector.
	name := h.prefix + "layers.0.self_attn.pos_bias_u"
	if info, ok := h.outer.Tensor(name); ok && len(info.Shape) == 2 && info.Shape[0] != int64(heads) && h.Good("d_model", "n_heads") {
		h.Wrong("n_heads", "%d heads, but %s is %v", heads, name, info.Shape)
	}
	taps := h.Range("conv_kernel_size", 1, maxKernel, 31)
	if taps%2 == 0 && h.Good("conv_kernel_size") {
		h.Wrong("conv_kernel_size", "%d is even", taps)
	}
	n := e.Hidden
	for i := range h.Int("n_layers", maxLayers) {
		p := h.prefix + "layers." + strconv.Itoa(i) + "."
		forward := func(k string) Branch {
			at := p + "feed_forward" + k + "."
			return Branch{Norm: h.norm(p + "norm_feed_forward" + k), Scale: 0.5, Block: &MLP{
				Intermediate: inner, Activation: SiLU, Up: linearOf(at+"linear1", inner, n, true), Down: linearOf(at+"linear2", n, inner, true),
			}}
		}
		at := p + "self_attn."
		attend := &Attention{
			Heads: heads, KVHeads: heads, HeadDim: n / heads, Bidirectional: true,
			Q: linearOf(at+"linear_q", n, n, true), K: linearOf(at+"linear_k", n, n, true), V: linearOf(at+"linear_v", n, n, true),
			O:        linearOf(at+"linear_out", n, n, true),
			Relative: &Relative{Content: h.flat(at+"pos_bias_u", n, 0), Place: h.flat(at+"pos_bias_v", n, 0), Keys: linearOf(at+"linear_pos", n, n, false)},
		}
		last := forward("2")
		last.SumNorm = h.norm(p + "norm_out")
		e.Layers = append(e.Layers, Layer{
			forward("1"), {Norm: h.norm(p + "norm_self_att"), Block: attend}, {Norm: h.norm(p + "norm_conv"), Block: h.gatedConv(p+"conv.", taps)}, last,
		})
	}
}

// gatedConv describes the convolution of a layer, with its norm of batches folded in.
func (h *hearing) gatedConv(p string, taps int) *GatedConv {
	n := h.e.Hidden
	point := func(name string, rows int) Linear {
		return Linear{Weight: h.flat(p+name+".weight", rows, n), Bias: Weight{Tensor: p + name + ".bias", Rows: rows}}
	}
	norm := p + "batch_norm."
	batch := &Batch{Gamma: norm + "weight", Beta: norm + "bias", Mean: norm + "running_mean", Variance: norm + "running_var", Eps: 1e-5}
	return &GatedConv{
		In: point("pointwise_conv1", 2*n), Out: point("pointwise_conv2", n),
		Kernel: h.view(View{Name: p + "folded.weight", Tensor: p + "depthwise_conv.weight", Rows: n, Cols: taps, Flat: true, Batch: batch}),
		Bias:   h.view(View{Name: p + "folded.bias", Tensor: p + "depthwise_conv.bias", Rows: n, Batch: batch}),
	}
}

// flat is a tensor of other dimensions as a matrix, or as a vector if cols is 0.
func (h *hearing) flat(name string, rows, cols int) Weight {
	return h.view(View{Name: name + ".flat", Tensor: name, Rows: rows, Cols: cols, Flat: true})
}

// view adds a view.
func (h *hearing) view(v View) Weight {
	h.views = append(h.views, v)
	return Weight{v.Name, v.Rows, v.Cols}
}
