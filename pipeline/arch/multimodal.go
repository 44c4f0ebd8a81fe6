package arch

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// multimodal is a model with vision or audio. Its config is in text_config, its tensors have a prefix, and the rest of the file
// and of the tensors is known: towers and projectors that no family describes are left out, with a note.
//
// Without a tower, rotation by several axes (mrope) is the plain one: the axes of text are equal.
type multimodal struct {
	architecture string
	// texts are the text models by the model_type of text_config. The one for "" describes files without text_config,
	// whose text keys are at the top level.
	texts map[string]textModel
	// missing are the values of the text class that published files leave out.
	missing map[string]int
	// tower describes the tower, whose rows have width elements; nil if it is left out. It returns nil if vision_config is no object, or
	// if it may be left out and there is none.
	tower func(c *Config, width int) *vision
}

// textModel describes a text_config. Its architecture, one of some names between spaces, may be missing there; empty if no name is accepted.
type textModel struct {
	architecture string
	describe     func(c *Config) (*Decoder, error)
}

// multimodals is the table by "model_type". Published files of Gemma 3 leave out the defaults of its class.
var multimodals = map[string]multimodal{
	"gemma3": {"Gemma3ForConditionalGeneration", map[string]textModel{
		"gemma3_text": {"Gemma3ForCausalLM", gemma3{inner: true}.describe},
	}, map[string]int{
		"vocab_size": 262208, "max_position_embeddings": 131072, "num_attention_heads": 8, "num_key_value_heads": 4,
	}, gemma3Tower},
	"gemma4":  {"Gemma4ForConditionalGeneration", map[string]textModel{"gemma4_text": {"Gemma4ForCausalLM", describeGemma4}}, nil, gemma4Tower},
	"glm_ocr": {"GlmOcrForConditionalGeneration", map[string]textModel{"glm_ocr_text": {"", describeGLMOCRText}}, nil, glmOCRTower},
	"internvl": {"InternVLForConditionalGeneration", map[string]textModel{
		"qwen2": {"Qwen2ForCausalLM", describeQwen2}, "qwen3": {"Qwen3ForCausalLM", describeQwen3}, "llama": {"LlamaForCausalLM", describeLlama},
	}, nil, internVLTower},
	"idefics3":   {"Idefics3ForConditionalGeneration", idefics3Texts, idefics3Missing, idefics3{"idefics3_vision", "idefics3"}.tower},
	"lfm2_audio": {"Lfm2AudioForConditionalGeneration", map[string]textModel{"lfm2": {"Lfm2ForCausalLM", lfm2{}.describe}}, nil, nil},
	"lfm2_vl":    {"Lfm2VlForConditionalGeneration", map[string]textModel{"lfm2": {"Lfm2ForCausalLM", lfm2{}.describe}}, nil, lfm2VLTower},
	"llama4":     {"Llama4ForConditionalGeneration", map[string]textModel{"llama4_text": {"Llama4ForCausalLM", describeLlama4Text}}, nil, nil},
	"llava": {"LlavaForConditionalGeneration", map[string]textModel{
		"llama": {"LlamaForCausalLM", describeLlama}, "mistral": {"MistralForCausalLM", describeMistral}, "qwen2": {"Qwen2ForCausalLM", describeQwen2},
	}, map[string]int{
		"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
	}, llavaTower},
	"llava_qwen2": {"LlavaQwen2ForCausalLM", map[string]textModel{"": {"", describeQwen2}}, nil, fastVLMTower},
	"minicpmv":    {"MiniCPMV", map[string]textModel{"": {"", describeMiniCPMVText}}, nil, miniCPMVTower},
	"mistral3": {"Mistral3ForConditionalGeneration", map[string]textModel{
		"mistral": {"", describeMistral}, "ministral": {"", describeMistral}, "ministral3": {"Ministral3ForCausalLM", describeMinistral3},
	}, nil, nil},
	"qwen2_audio": {"Qwen2AudioForConditionalGeneration", map[string]textModel{"qwen2": {"Qwen2ForCausalLM", describeQwen2}}, map[string]int{
		"hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
	}, nil},
	"qwen2_vl": {"Qwen2VLForConditionalGeneration", map[string]textModel{
		"": {"", qwenText{}.describe}, "qwen2_vl_text": {"", qwenText{}.describe},
	}, map[string]int{"max_window_layers": 80}, qwen2VLTower},
	"qwen2_5_omni": {"Qwen2_5OmniForConditionalGeneration Qwen2_5OmniModel", map[string]textModel{"qwen2_5_omni_text": {"", omniText}}, nil, omniTower},
	"qwen2_5_omni_thinker": {
		"Qwen2_5OmniThinkerForConditionalGeneration", map[string]textModel{"qwen2_5_omni_text": {"", omniText}}, nil, omniTower,
	},
	"qwen2_5_vl": {"Qwen2_5_VLForConditionalGeneration", map[string]textModel{
		"": {"", qwenText{}.describe}, "qwen2_5_vl_text": {"", qwenText{}.describe},
	}, map[string]int{"max_window_layers": 80}, qwen25VLTower},
	"qwen3_5": {"Qwen3_5ForConditionalGeneration", map[string]textModel{"qwen3_5_text": {"Qwen3_5ForCausalLM", qwen35{}.describe}}, nil, qwen35Tower},
	"qwen3_5_moe": {"Qwen3_5MoeForConditionalGeneration", map[string]textModel{
		"qwen3_5_moe_text": {"Qwen3_5MoeForCausalLM", qwen35{experts: true}.describe},
	}, nil, qwen35Tower},
	"qwen3_vl": {"Qwen3VLForConditionalGeneration", map[string]textModel{"qwen3_vl_text": {"", qwenText{three: true}.describe}}, nil, qwen3VLTower},
	"smolvlm":  {"SmolVLMForConditionalGeneration", idefics3Texts, idefics3Missing, idefics3{"smolvlm_vision", "smolvlm"}.tower},
	"qwen3_vl_moe": {"Qwen3VLMoeForConditionalGeneration", map[string]textModel{
		"qwen3_vl_moe_text": {"", qwenText{three: true, experts: true}.describe},
	}, nil, qwen3VLTower},
}

// ears describe towers that read sound, whose rows have width elements, by "model_type". They return nil if audio_config is no object, or if it
// may be left out and there is none.
var ears = map[string]func(c *Config, width int) *hearing{
	"gemma4": gemma4Ear, "lfm2_audio": lfm2AudioEar, "qwen2_5_omni": omniEar, "qwen2_5_omni_thinker": omniEar, "qwen2_audio": qwen2AudioEar,
}

// outerInert are the keys outside text_config that do not concern text.
var outerInert = []string{
	"audio_config", "audio_token_id", "boa_token_id", "boi_token_id", "boi_token_index", "eoa_token_id", "eoa_token_index",
	"eoi_token_id", "eoi_token_index", "image_end_token_id", "image_start_token_id", "image_token_id", "image_token_index",
	"language_model_only", "mm_tokens_per_image", "multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size",
	"video_end_token_id", "video_start_token_id", "video_token_id", "vision_config", "vision_end_token_id",
	"vision_feature_layer", "vision_feature_select_strategy", "vision_soft_tokens_per_image", "vision_start_token_id",
	"vision_token_id",
}

// textPrefixes are the prefixes of the text model's tensors, and the names of its head.
var textPrefixes = []struct{ model, head string }{
	{"language_model.model.", "language_model.lm_head"},
	{"model.language_model.", "lm_head"},
	{"thinker.model.", "thinker.lm_head"},
	{"lfm.", "lfm.lm_head"},
	{"llm.model.", "llm.lm_head"},
	{"model.text_model.", "lm_head"},
	{"model.", "lm_head"},
}

// The tensors of other modalities.
const (
	visionTensors = `^(model\.|thinker\.)?(vision_tower|vision_model|visual)\.`
	joinerTensors = `^(model\.)?(multi_modal_projector|mm_projector|embed_vision)\.`
	audioTensors  = `^(model\.|thinker\.)?(audio_tower|audio_model|embed_audio)\.`
)

func (m multimodal) describe(c *Config) (*Decoder, error) {
	if c.family == "qwen2_5_omni" {
		thinker := c.thinker()
		if thinker == nil {
			return nil, c.Finish()
		}
		c = thinker
	}
	textKey := "text_config"
	if c.family == "lfm2_audio" {
		textKey = "lfm"
	} else {
		c.Inert(outerInert...)
	}
	text := c
	model, flat := m.texts[""]
	if flat && !c.Has(textKey) {
		c.class = transformers().types[c.family+"_text"] // the class that reads such a file
	}
	if inner := c.Object(textKey); inner != nil || !flat {
		if inner == nil {
			c.missing(textKey)
			c.Inert("tie_word_embeddings")
			return nil, c.Finish()
		}
		text = inner
		if _, there := text.fields.values["model_type"]; !there && c.family == "lfm2_audio" {
			text.fields.values["model_type"] = "lfm2" // the only class that the library has
		}
		var ok bool
		if model, ok = m.textModel(text); !ok {
			return nil, problems{scope: configName, list: c.problems}
		}
	}
	for key, n := range m.missing {
		text.provide(key, n)
	}
	c.model, c.head = "model.", "lm_head"
	for _, p := range textPrefixes {
		if _, ok := c.Tensor(p.model + "embed_tokens.weight"); ok {
			c.model, c.head = p.model, p.head
			break
		}
	}
	var v *vision
	if m.tower != nil {
		v = m.tower(c, text.Int("hidden_size", maxHidden))
	}
	var h *hearing
	if ear := ears[c.family]; ear != nil {
		h = ear(c, text.Int("hidden_size", maxHidden))
	}
	if omni := strings.HasPrefix(c.family, "qwen2_5_omni"); omni && c.Has("tie_word_embeddings") { // the library's class reads no other
		text.fields.values["tie_word_embeddings"] = c.fields.values["tie_word_embeddings"]
	}
	switch {
	case c.family == "lfm2_vl":
		c.tieLFM2(text)
	case c.family == "lfm2_audio": // the head is the embedding table, whatever tie_word_embeddings says
		for _, key := range []string{"tie_word_embeddings", "tie_embedding"} {
			text.fields.values[key] = true
		}
	}
	if text != c {
		if c.family != "lfm2_audio" {
			m.tie(c, text)
		}
		c.checkInert()
	}
	d, err := model.describe(text)
	if err != nil {
		return nil, err
	}
	tail := Weight{}
	if p := d.PerLayer; p != nil && (v != nil || h != nil) {
		table := p.Table
		row := View{
			Name: strings.TrimSuffix(table.Tensor, ".weight") + "_of_pad", Tensor: table.Tensor, Rows: table.Cols,
			Runs: []Run{{Start: p.Pad * table.Cols, Count: table.Cols}},
		}
		tail, d.Views = Weight{row.Name, row.Rows, row.Cols}, append(d.Views, row)
	}
	if v != nil {
		c.towers, d.Inserted, d.Deep = append(c.towers, v.t), true, len(v.t.Deep)
		if d.EmbeddingScale != 0 {
			v.t.Scale = 1 / d.EmbeddingScale
		}
		if v.marked && (d.PerLayer != nil || h != nil) {
			other := "hidden_size_per_layer_input"
			if d.PerLayer == nil {
				other = "audio_config"
			}
			text.Refuse("use_bidirectional_attention", "\"vision\" is not supported together with %s: both need columns of rows", other)
			return nil, problems{scope: configName, list: c.problems}
		}
		v.t.Tail = tail
		if v.marked {
			v.t.Marks = marksOf(d.Hidden)
			table := View{Tensor: d.Embedding.Tensor, Rows: d.Vocab, Cols: d.Hidden + v.t.Marks, Zeros: v.t.Marks}
			table.Name = strings.TrimSuffix(table.Tensor, ".weight") + "_marked.weight"
			d.Lookup = v.view(table)
		}
		if v.text != nil {
			if err := v.turn(d); err != nil {
				return nil, err
			}
		}
		d.Views, d.Skips = append(d.Views, v.views...), append(d.Skips, v.skips...)
	}
	if h != nil {
		c.ear, d.Inserted, h.e.Tail = h.e, true, tail
		if d.EmbeddingScale != 0 {
			h.e.Scale = 1 / d.EmbeddingScale
		}
		d.Views, d.Skips = append(d.Views, h.views...), append(d.Skips, h.skips...)
	}
	b := builder{d: d}
	if v != nil && h == nil && c.family == "gemma4" {
		b.skip("audio tower", true, audioTensors)
	}
	if v == nil && h == nil {
		b.skip("vision tower", true, visionTensors)
		b.skip("projector of images", true, joinerTensors)
		b.skip("audio tower", true, audioTensors)
	}
	return d, nil
}

// textModel picks the text model of text_config.
func (m multimodal) textModel(text *Config) (model textModel, ok bool) {
	kind := text.String("model_type")
	if model, ok = m.texts[kind]; !ok || kind == "" {
		if text.Good("model_type") {
			text.unsupported("model_type", "%s is not supported (known: %s)", show(kind), quoted(slices.Sorted(maps.Keys(m.texts))))
		}
		return textModel{}, false
	}
	if list := text.Strings("architectures"); len(list) > 1 || len(list) == 1 && !slices.Contains(strings.Fields(model.architecture), list[0]) && list[0] != "" {
		text.Refuse("architectures", "is not that of %s", kind)
	}
	text.class = transformers().types[kind]
	return model, true
}

// tie reads from text_config or the outer object whether the head is the embedding. If neither has the key, the model
// is tied if there is no head: versions of the library have different defaults.
func (m multimodal) tie(c, text *Config) {
	const key = "tie_word_embeddings"
	_, head := c.Tensor(c.head + ".weight")
	outer, inner := c.Has(key), text.Has(key)
	tied := !head
	if outer {
		tied = c.Bool(key, tied)
	}
	if inner {
		if t := text.Bool(key, tied); outer && t != tied && c.Good(key) && text.Good(key) {
			c.Wrong(key, "%t contradicts the %t of text_config", tied, t)
		}
		return
	}
	text.fields.values[key] = tied
}

// tieLFM2 makes the outer object say whether the head of LFM2-VL is the embedding, as the library's class does, whatever text_config says.
func (c *Config) tieLFM2(text *Config) {
	const key, old = "tie_word_embeddings", "tie_embedding"
	tied := true
	for _, k := range []string{key, old} {
		if c.Has(k) {
			tied = c.Bool(k, tied)
		}
	}
	text.fields.values[key] = tied
	if c.fields.values[key] = tied; text.Has(old) {
		text.fields.values[old] = tied
	}
}

// provide sets key to n, the class default, unless the file has it.
func (c *Config) provide(key string, n int) {
	if _, there := c.fields.values[key]; !there {
		c.fields.values[key] = json.Number(strconv.Itoa(n))
	}
}

// qwenText is the text model of Qwen2-VL and 2.5-VL, and with three of Qwen3-VL: Qwen2, Qwen3 or Qwen3Moe with
// other defaults, those of Qwen3-VL without windows.
type qwenText struct{ three, experts bool }

func (f qwenText) describe(c *Config) (*Decoder, error) {
	switch {
	case f.experts:
		b := begin(c, "rms_norm_eps", 1e-6)
		b.tied(true)
		b.Only("norm_topk_prob", "true")
		delete(c.fields.values, "norm_topk_prob") // null has no effect: weights are normalized in any case
		rope := ropeRules{theta: 500000, mrope: true}.read(c)
		return finishQwen3Moe(b, rope, softmaxKeys{experts: 60, topK: 4, intermediate: 1408, normalize: true}, (*builder).noWindows)
	case f.three:
		return finishQwen3(begin(c, "rms_norm_eps", 1e-6), ropeRules{theta: 500000, mrope: true}, (*builder).noWindows)
	}
	return finishQwen2(begin(c, "rms_norm_eps", 1e-5), ropeRules{theta: 1e6, mrope: true})
}
