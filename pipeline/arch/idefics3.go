package arch

import (
	"slices"
)

// idefics3 is the tower of Idefics3 and of SmolVLM, which has the same: SigLIP for the tiles of a picture, and a projector of one matrix.
// kinds are the words for its transformer; published files have the second.
type idefics3 struct{ kind, published string }

// idefics3Texts are their text models. The second architecture is the word of the framework that they were trained with.
var idefics3Texts = map[string]textModel{"llama": {"LlamaForCausalLM VLlama3ForCausalLM", describeIdefics3Text}}

// idefics3Missing are the defaults of the text model's class.
var idefics3Missing = map[string]int{
	"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048, "vocab_size": 32000,
}

// describeIdefics3Text is Llama with keys of the framework that the models were trained with.
func describeIdefics3Text(c *Config) (*Decoder, error) {
	c.Only("qk_layer_norms", "false")
	c.Only("use_resampler", "false")
	c.Only("rope_interleaved", "false")
	c.Inert("perceiver_config", "pixel_shuffle_factor")
	return describeLlama(c)
}

// unevenSides are the numbers of patches of an edge, up to evenSides, for which the library rounds the places of patches so that several
// share a position. Which ones depends on the width of the processor's vectors.
var unevenSides = []int{19, 25, 29, 31, 38, 40, 41, 43, 47, 49, 50, 54, 55, 58, 59, 61, 62}

const evenSides = 64

func (f idefics3) tower(c *Config, width int) *vision {
	v := beginVision(c, visionDefaults{1152, 3072, 12, 16, 224, 32, "gelu_pytorch_tanh", 1e-6})
	if v == nil {
		return nil
	}
	v.Only("model_type", show(f.kind), show(f.published))
	v.Inert("max_image_size", "size", "use_base_siglip", "tie_word_embeddings")
	c.Inert("vocab_size") // that of the text model counts
	v.prefix, v.joiner = v.locate("embeddings.", "vision_model."), v.locate("", "connector.modality_projection.")
	t := v.t
	t.ModelType = f.kind
	t.Tiles = &Tiles{Whole: "<global-img>", Most: 4 * t.Size}
	t.Start, t.End = "<fake_token_around_image>", "<fake_token_around_image>"
	t.Mean, t.Deviation = halves3, halves3
	if n := t.Side(); v.Good("image_size", "patch_size") && (n > evenSides || slices.Contains(unevenSides, n)) {
		v.unsupported("image_size", "%d patches in a row, whose positions the library rounds", n)
	}
	t.Cell = c.Range("scale_factor", 1, 64, 2)
	if t.Side()%t.Cell != 0 && v.Good("image_size", "patch_size") && c.Good("scale_factor") {
		c.Wrong("scale_factor", "%d x %d patches do not divide into cells of %d x %d", t.Side(), t.Side(), t.Cell, t.Cell)
	}
	v.patches(v.prefix+"embeddings.patch_embedding", true)
	t.Positions = Weight{v.prefix + "embeddings.position_embedding.weight", t.States(), t.Hidden}
	names := visionNames{"encoder.layers.", "layer_norm1", "layer_norm2", "self_attn.", "out_proj"}
	v.layersOf(names, func(p string) Layer { return v.block(names, p, true) })
	t.PostNorm = v.norm(v.prefix+"post_layernorm", t.Hidden)
	t.In = linearOf(v.joiner+"proj", width, t.Cell*t.Cell*t.Hidden, false)
	t.Pad = c.tokenID("image_token_id", "image_token_index", 128257)
	return v.finish()
}
