package arch

import (
	"maps"
	"slices"
	"strings"
)

// family describes the models of one model_type.
type family struct {
	modelType string
	// architectures lists the entries of "architectures" in config.json that the family describes.
	architectures []string
	// describe reads every key of c that the computation depends on, lets c.Finish check the rest, and returns the
	// description with checked dimensions. It sets neither the names (Family, ModelType, Architecture) nor Claimed and
	// Ignored; [Describe] does.
	describe func(c *Config) (*Decoder, error)
}

// families is the table by "model_type", sorted. Model types that are neither here nor in multimodals are rejected.
var families = []family{
	{"apertus", []string{"ApertusForCausalLM"}, describeApertus},
	{"arcee", []string{"ArceeForCausalLM"}, describeArcee},
	{"axk1", []string{"AXK1ForCausalLM"}, describeAXK1},
	{"baichuan", []string{"BaichuanForCausalLM", "BaiChuanForCausalLM"}, describeBaichuan},
	{"bailing_moe", []string{"BailingMoeForCausalLM"}, describeBailingMoe},
	{"bamba", []string{"BambaForCausalLM"}, describeBamba},
	{"bitnet", []string{"BitNetForCausalLM"}, describeBitNet},
	{"bloom", []string{"BloomForCausalLM"}, describeBloom},
	{"chatglm", []string{"ChatGLMModel", "ChatGLMForConditionalGeneration"}, describeChatGLM},
	{"cohere", []string{"CohereForCausalLM"}, describeCohere},
	{"cohere2", []string{"Cohere2ForCausalLM"}, describeCohere2},
	{"cwm", []string{"CwmForCausalLM"}, describeCWM},
	{"deepseek_v2", []string{"DeepseekV2ForCausalLM"}, deepSeek{v2: true}.describe},
	{"deepseek_v3", []string{"DeepseekV3ForCausalLM"}, deepSeek{}.describe},
	{"dots1", []string{"Dots1ForCausalLM"}, describeDots1},
	{"ernie4_5", []string{"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"}, ernie{}.describe},
	{"ernie4_5_moe", []string{"Ernie4_5_MoeForCausalLM"}, ernie{experts: true}.describe},
	{"exaone", []string{"ExaoneForCausalLM"}, describeExaone},
	{"exaone4", []string{"Exaone4ForCausalLM"}, describeExaone4},
	{"falcon_h1", []string{"FalconH1ForCausalLM"}, describeFalconH1},
	{"gemma", []string{"GemmaForCausalLM"}, describeGemma},
	{"gemma2", []string{"Gemma2ForCausalLM"}, describeGemma2},
	{"gemma3_text", []string{"Gemma3ForCausalLM", "Gemma3TextModel"}, gemma3{}.describe},
	{"gemma4_text", []string{"Gemma4ForCausalLM"}, describeGemma4},
	{"glm", []string{"GlmForCausalLM"}, describeGLM},
	{"glm4", []string{"Glm4ForCausalLM"}, describeGLM4},
	{"glm4_moe", []string{"Glm4MoeForCausalLM"}, describeGLM4Moe},
	{"glm4_moe_lite", []string{"Glm4MoeLiteForCausalLM"}, describeGLM4MoeLite},
	{"gpt2", []string{"GPT2LMHeadModel"}, describeGPT2},
	{"gpt_neox", []string{"GPTNeoXForCausalLM"}, describeGPTNeoX},
	{"gpt_oss", []string{"GptOssForCausalLM"}, describeGptOss},
	{"granite", []string{"GraniteForCausalLM"}, granite{}.describe},
	{"granitemoe", []string{"GraniteMoeForCausalLM"}, granite{experts: true}.describe},
	{"granitemoehybrid", []string{"GraniteMoeHybridForCausalLM"}, describeGraniteHybrid},
	{"granitemoeshared", []string{"GraniteMoeSharedForCausalLM"}, granite{experts: true, shared: true}.describe},
	{"helium", []string{"HeliumForCausalLM"}, describeHelium},
	{"hunyuan_v1_dense", []string{"HunYuanDenseV1ForCausalLM"}, hunyuan{}.describe},
	{"hunyuan_v1_moe", []string{"HunYuanMoEV1ForCausalLM"}, hunyuan{experts: true}.describe},
	{"hyperclovax", []string{"HyperCLOVAXForCausalLM"}, describeHyperCLOVAX},
	{"internlm2", []string{"InternLM2ForCausalLM"}, describeInternLM2},
	{"internlm3", []string{"InternLM3ForCausalLM", "LlamaForCausalLM"}, describeInternLM3},
	{"iquestcoder", []string{"IQuestCoderForCausalLM", "LlamaForCausalLM"}, describeIQuestCoder},
	{"kimi_k2", []string{"DeepseekV3ForCausalLM"}, deepSeek{}.describe}, // the words of its authors: DeepSeek-V3 under another name
	{"lfm2", []string{"Lfm2ForCausalLM"}, lfm2{}.describe},
	{"lfm2_moe", []string{"Lfm2MoeForCausalLM"}, lfm2{experts: true}.describe},
	{"llama", []string{"LlamaForCausalLM"}, describeLlama},
	{"llama4_text", []string{"Llama4ForCausalLM"}, describeLlama4Text},
	{"mimo", []string{"MiMoForCausalLM"}, describeMiMo},
	{"minicpm", []string{"MiniCPMForCausalLM"}, describeMiniCPM},
	{"minicpm3", []string{"MiniCPM3ForCausalLM"}, describeMiniCPM3},
	{"minimax_m2", []string{"MiniMaxM2ForCausalLM"}, describeMiniMaxM2},
	{"ministral", []string{"MinistralForCausalLM"}, describeMistral},
	{"ministral3", []string{"Ministral3ForCausalLM"}, describeMinistral3},
	{"mistral", []string{"MistralForCausalLM"}, describeMistral},
	{"mixtral", []string{"MixtralForCausalLM"}, describeMixtral},
	{"nemotron", []string{"NemotronForCausalLM"}, describeNemotron},
	{"olmo", []string{"OlmoForCausalLM"}, describeOlmo},
	{"olmo2", []string{"Olmo2ForCausalLM"}, describeOlmo2},
	{"olmo3", []string{"Olmo3ForCausalLM"}, describeOlmo3},
	{"olmoe", []string{"OlmoeForCausalLM"}, describeOlmoe},
	{"opt", []string{"OPTForCausalLM"}, describeOPT},
	{"phi", []string{"PhiForCausalLM"}, describePhi},
	{"phi3", []string{"Phi3ForCausalLM"}, describePhi3},
	{"phimoe", []string{"PhiMoEForCausalLM", "PhimoeForCausalLM"}, describePhiMoE},
	{"qwen2", []string{"Qwen2ForCausalLM"}, describeQwen2},
	{"qwen2_moe", []string{"Qwen2MoeForCausalLM"}, describeQwen2Moe},
	{"qwen3", []string{"Qwen3ForCausalLM"}, describeQwen3},
	{"qwen3_5_moe_text", []string{"Qwen3_5MoeForCausalLM"}, qwen35{experts: true}.describe},
	{"qwen3_5_text", []string{"Qwen3_5ForCausalLM"}, qwen35{}.describe},
	{"qwen3_moe", []string{"Qwen3MoeForCausalLM"}, describeQwen3Moe},
	{"qwen3_next", []string{"Qwen3NextForCausalLM"}, describeQwen3Next},
	{"seed_oss", []string{"SeedOssForCausalLM"}, describeSeedOss},
	{"smollm3", []string{"SmolLM3ForCausalLM"}, describeSmolLM3},
	{"solar_open", []string{"SolarOpenForCausalLM"}, describeSolarOpen},
	{"stablelm", []string{"StableLmForCausalLM"}, describeStableLM},
	{"starcoder2", []string{"Starcoder2ForCausalLM"}, describeStarcoder2},
	{"youtu", []string{"YoutuForCausalLM"}, describeYoutu},
}

// findFamily returns the family of a model type.
func findFamily(modelType string) (family, bool) {
	if m, ok := multimodals[modelType]; ok {
		return family{modelType, strings.Fields(m.architecture), m.describe}, true
	}
	for _, table := range [][]family{families, encoders} {
		if i := slices.IndexFunc(table, func(f family) bool { return f.modelType == modelType }); i >= 0 {
			return table[i], true
		}
	}
	return family{}, false
}

// nameless are the model types of architectures whose files do not have it.
var nameless = map[string]string{"Lfm2AudioForConditionalGeneration": "lfm2_audio"}

// modelType returns that of the file, or empty.
func (c *Config) modelType() string {
	if name, ok := c.OptString("model_type"); ok {
		return name
	}
	if list, ok := c.fields.values["architectures"].([]any); ok && len(list) == 1 {
		name, _ := list[0].(string)
		return nameless[name]
	}
	return ""
}

// pickFamily reads model_type and architectures. Both must be known, regardless of ignored keys: no model is described
// by the code of another.
func pickFamily(c *Config) (f family, architecture string, ok bool) {
	modelType := c.modelType()
	if modelType == "" && !c.Has("model_type") {
		c.missing("model_type")
	}
	if f, ok = findFamily(modelType); !ok {
		if c.Good("model_type") {
			c.unsupported("model_type", "%s is not supported", show(modelType))
		}
		return family{modelType: modelType}, "", false
	}
	list, known := c.Strings("architectures"), f.architectures
	switch {
	case !c.Has("architectures") && transformers().types[modelType] != nil:
		architecture = known[0] // which transformers picks by the model type
		c.note("%s names no architecture: %s is that of model_type %s", configName, architecture, modelType)
	case !c.Has("architectures"):
		c.missing("architectures")
	case len(list) > 1 && isEncoder(modelType) && !slices.ContainsFunc(list, func(a string) bool { return !slices.Contains(known, a) }):
		architecture = list[0] // one encoder, saved with the heads of several tasks
	case len(list) != 1:
		c.unsupported("architectures", "%d entries, want one", len(list))
	case !slices.Contains(known, list[0]) && !headless(modelType, known, list[0]):
		c.unsupported("architectures", "%s is not supported for model_type %s (known: %s)",
			show(list[0]), modelType, strings.Join(known, ", "))
	default:
		architecture = list[0]
	}
	return f, architecture, true
}

// isEncoder reports whether a model type is that of a family that only encodes.
func isEncoder(modelType string) bool {
	return slices.ContainsFunc(encoders, func(f family) bool { return f.modelType == modelType })
}

// headless reports whether an architecture is a known one without its head: Qwen3Model for Qwen3ForCausalLM, which
// transformers loads from such a checkpoint. The tensors decide about the head.
func headless(modelType string, known []string, architecture string) bool {
	name, ok := strings.CutSuffix(architecture, "Model")
	return ok && transformers().types[modelType] != nil && slices.Contains(known, name+"ForCausalLM")
}

// ModelTypes lists the supported values of "model_type", sorted.
func ModelTypes() []string {
	var names []string
	for _, k := range Table() {
		names = append(names, k.ModelType)
	}
	return names
}

// Known is a line of the table of families.
type Known struct {
	ModelType     string
	Architectures []string
	// Texts are the model types of the text models that a multimodal model can have, if only they are described.
	Texts []string
}

// Table lists the families, sorted by model type.
func Table() []Known {
	list := make([]Known, 0, len(families)+len(multimodals))
	for _, f := range families {
		list = append(list, Known{ModelType: f.modelType, Architectures: f.architectures})
	}
	for modelType, m := range multimodals {
		texts := slices.DeleteFunc(slices.Sorted(maps.Keys(m.texts)), func(t string) bool { return t == "" || m.tower != nil || ears[modelType] != nil })
		list = append(list, Known{modelType, strings.Fields(m.architecture), texts})
	}
	slices.SortFunc(list, func(a, b Known) int { return strings.Compare(a.ModelType, b.ModelType) })
	return list
}
