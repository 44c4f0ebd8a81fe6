package arch

import "strconv"

// hearing makes an Ear. A family reads the keys of its audio_config, or what has that place.
type hearing struct {
	*Config
	outer  *Config
	e      *Ear
	prefix string
	views  []View
	skips  []Skip
	// eps is that of norms whose file says so, clipped that matrices have bounds of what they read and compute.
	eps     float64
	clipped bool
}

// engineMels is the number of features that the engine computes of a frame.
const engineMels = "128"

// beginHearing reads the keys of audio_config that encoders in the form of Whisper share, and describes their convolutions and layers. It
// returns nil after a problem with the object itself.
func beginHearing(c *Config, modelType string) *hearing {
	h := &hearing{Config: c.Object("audio_config"), outer: c, prefix: "audio_tower."}
	if h.Config == nil {
		c.missing("audio_config")
		return nil
	}
	if _, inner := c.Tensor("thinker.audio_tower.conv1.weight"); inner {
		h.prefix = "thinker.audio_tower."
	}
	for key, n := range map[string]int{
		"num_mel_bins": 128, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "d_model": 1280, "max_source_positions": 1500,
	} {
		h.provide(key, n)
	}
	e := &Ear{
		ModelType: modelType, Features: WhisperFeatures, Hidden: h.Int("d_model", maxHidden), Mels: h.Int("num_mel_bins", maxHidden),
		Start: "<|audio_bos|>", End: "<|audio_eos|>",
	}
	e.Before, e.After = e.Start, e.End
	h.e = e
	h.Only("model_type", strconv.Quote(e.ModelType))
	h.Only("num_mel_bins", engineMels)
	h.Inert("init_std", "initializer_range", "dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "architectures",
		"scale_embedding") // the library's classes compute the factor and do not use it
	layers, heads, intermediate := h.Int("encoder_layers", maxLayers), h.Int("encoder_attention_heads", maxHeads), h.Int("encoder_ffn_dim", maxIntermediate)
	h.Only("num_hidden_layers", strconv.Itoa(layers)) // another name of it in published files
	activation := h.function("activation_function", "gelu")
	if h.Good("d_model", "encoder_attention_heads") && e.Hidden%heads != 0 {
		h.Wrong("encoder_attention_heads", "d_model %d is not divisible by %d heads", e.Hidden, heads)
	}
	e.First, e.Second = h.convolution("conv1", e.Mels), h.convolution("conv2", e.Hidden)
	for i := range layers {
		p := h.prefix + "layers." + strconv.Itoa(i) + "."
		at := p + "self_attn."
		e.Layers = append(e.Layers, Layer{
			{Norm: h.norm(p + "self_attn_layer_norm"), Block: &Attention{
				Heads: heads, KVHeads: heads, HeadDim: e.Hidden / heads, Bidirectional: true,
				Q: linearOf(at+"q_proj", e.Hidden, e.Hidden, true), K: linearOf(at+"k_proj", e.Hidden, e.Hidden, false),
				V: linearOf(at+"v_proj", e.Hidden, e.Hidden, true), O: linearOf(at+"out_proj", e.Hidden, e.Hidden, true),
			}},
			{Norm: h.norm(p + "final_layer_norm"), Block: &MLP{
				Intermediate: intermediate, Activation: activation,
				Up: linearOf(p+"fc1", intermediate, e.Hidden, true), Down: linearOf(p+"fc2", e.Hidden, intermediate, true),
			}},
		})
	}
	return h
}

// convolution is the linear layer of a convolution over three frames.
func (h *hearing) convolution(name string, channels int) Linear {
	name = h.prefix + name
	w := h.view(View{Name: name + "_matrix.weight", Tensor: name + ".weight", Rows: h.e.Hidden, Cols: 3 * channels, Flat: true})
	return Linear{Weight: w, Bias: Weight{Tensor: name + ".bias", Rows: h.e.Hidden}}
}

// norm is a LayerNorm of the states.
func (h *hearing) norm(name string) *Norm {
	return &Norm{Gamma: Weight{Tensor: name + ".weight", Rows: h.e.Hidden}, Beta: Weight{Tensor: name + ".bias", Rows: h.e.Hidden}, Eps: 1e-5, Centered: true}
}

// finish rejects what was not read.
func (h *hearing) finish() *hearing {
	h.checkInert()
	h.checkObjects()
	for _, key := range h.fields.keys {
		h.take(key) // the file may be the object that is checked as a whole
	}
	return h
}
