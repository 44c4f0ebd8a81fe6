package arch

import (
	"maps"
	"slices"
	"strings"
)

// Family is the code for one kind of model.
type Family interface {
	// Architectures lists the entries of "architectures" in config.json that the family describes.
	Architectures() []string
	// Describe reads every key of c that the computation depends on, lets c.Finish check the rest, and returns the
	// description with checked dimensions. It sets neither the names (Family, ModelType, Architecture) nor Claimed and
	// Ignored; [Describe] does.
	Describe(c *Config) (*Decoder, error)
}

// families is the table by "model_type", sorted. Other model types are rejected.
var families = []struct {
	modelType string
	family    Family
}{
	{"apertus", Apertus{}},
	{"arcee", Arcee{}},
	{"axk1", AXK1{}},
	{"baichuan", Baichuan{}},
	{"bailing_moe", BailingMoe{}},
	{"bamba", Bamba{}},
	{"bitnet", BitNet{}},
	{"bloom", Bloom{}},
	{"chatglm", ChatGLM{}},
	{"cohere", Cohere{}},
	{"cohere2", Cohere2{}},
	{"cwm", CWM{}},
	{"deepseek_v2", DeepSeek{V2: true}},
	{"deepseek_v3", DeepSeek{}},
	{"dots1", Dots1{}},
	{"ernie4_5", Ernie{}},
	{"ernie4_5_moe", Ernie{Experts: true}},
	{"exaone", Exaone{}},
	{"exaone4", Exaone4{}},
	{"falcon_h1", FalconH1{}},
	{"gemma", Gemma{}},
	{"gemma2", Gemma2{}},
	{"gemma3", gemma3Multimodal},
	{"gemma3_text", Gemma3{}},
	{"gemma4", gemma4Multimodal},
	{"gemma4_text", Gemma4{}},
	{"glm", GLM{}},
	{"glm4", GLM4{}},
	{"glm4_moe", GLM4Moe{}},
	{"glm4_moe_lite", GLM4MoeLite{}},
	{"gpt2", GPT2{}},
	{"gpt_neox", GPTNeoX{}},
	{"gpt_oss", GptOss{}},
	{"granite", Granite{}},
	{"granitemoe", Granite{Experts: true}},
	{"granitemoehybrid", GraniteHybrid{}},
	{"granitemoeshared", Granite{Experts: true, Shared: true}},
	{"helium", Helium{}},
	{"hunyuan_v1_dense", Hunyuan{}},
	{"hunyuan_v1_moe", Hunyuan{Experts: true}},
	{"hyperclovax", HyperCLOVAX{}},
	{"internlm2", InternLM2{}},
	{"internlm3", InternLM3{}},
	{"iquestcoder", IQuestCoder{}},
	{"kimi_k2", DeepSeek{}}, // the words of its authors: DeepSeek-V3 under another name
	{"lfm2", LFM2{}},
	{"lfm2_moe", LFM2{Experts: true}},
	{"llama", Llama{}},
	{"llama4", llama4Multimodal},
	{"llama4_text", Llama4Text{}},
	{"mimo", MiMo{}},
	{"minicpm", MiniCPM{}},
	{"minicpm3", MiniCPM3{}},
	{"minimax_m2", MiniMaxM2{}},
	{"ministral", Mistral{"MinistralForCausalLM"}},
	{"ministral3", Ministral3{}},
	{"mistral", Mistral{"MistralForCausalLM"}},
	{"mistral3", mistral3Multimodal},
	{"mixtral", Mixtral{}},
	{"nemotron", Nemotron{}},
	{"olmo", Olmo{}},
	{"olmo2", Olmo2{}},
	{"olmo3", Olmo3{}},
	{"olmoe", Olmoe{}},
	{"opt", OPT{}},
	{"phi", Phi{}},
	{"phi3", Phi3{}},
	{"phimoe", PhiMoE{}},
	{"qwen2", Qwen2{}},
	{"qwen2_5_vl", qwen25VL},
	{"qwen2_moe", Qwen2Moe{}},
	{"qwen2_vl", qwen2VL},
	{"qwen3", Qwen3{}},
	{"qwen3_5", qwen35Multimodal},
	{"qwen3_5_moe", qwen35MoeMultimodal},
	{"qwen3_5_moe_text", Qwen35{Experts: true}},
	{"qwen3_5_text", Qwen35{}},
	{"qwen3_moe", Qwen3Moe{}},
	{"qwen3_next", Qwen3Next{}},
	{"qwen3_vl", qwen3VL},
	{"qwen3_vl_moe", qwen3VLMoe},
	{"seed_oss", SeedOss{}},
	{"smollm3", SmolLM3{}},
	{"solar_open", SolarOpen{}},
	{"stablelm", StableLM{}},
	{"starcoder2", Starcoder2{}},
	{"youtu", Youtu{}},
}

// ModelTypes lists the supported values of "model_type", sorted.
func ModelTypes() []string {
	names := make([]string, 0, len(families))
	for _, f := range families {
		names = append(names, f.modelType)
	}
	return names
}

// pickFamily reads model_type and architectures. Both must be known, regardless of ignored keys: no model is described
// by the code of another.
func pickFamily(c *Config) (f Family, modelType, architecture string) {
	modelType = c.String("model_type")
	for _, entry := range families {
		if entry.modelType == modelType {
			f = entry.family
		}
	}
	if f == nil {
		if c.Good("model_type") {
			c.unsupported("model_type", "%s is not supported", show(modelType))
		}
		return nil, modelType, ""
	}
	list, known := c.Strings("architectures"), f.Architectures()
	switch {
	case !c.Has("architectures") && transformers().types[modelType] != nil:
		architecture = known[0] // which transformers picks by the model type
		c.note("%s names no architecture: %s is that of model_type %s", configName, architecture, modelType)
	case !c.Has("architectures"):
		c.missing("architectures")
	case len(list) != 1:
		c.unsupported("architectures", "%d entries, want one", len(list))
	case !slices.Contains(known, list[0]) && !headless(modelType, known, list[0]):
		c.unsupported("architectures", "%s is not supported for model_type %s (known: %s)",
			show(list[0]), modelType, strings.Join(known, ", "))
	default:
		architecture = list[0]
	}
	return f, modelType, architecture
}

// headless reports whether an architecture is a known one without its head: Qwen3Model for Qwen3ForCausalLM, which
// transformers loads from such a checkpoint. The tensors decide about the head.
func headless(modelType string, known []string, architecture string) bool {
	name, ok := strings.CutSuffix(architecture, "Model")
	return ok && transformers().types[modelType] != nil && slices.Contains(known, name+"ForCausalLM")
}

// Known is a line of the table of families.
type Known struct {
	ModelType     string
	Architectures []string
	// Texts are the model types of the text models that a multimodal model can have; only they are described.
	Texts []string
}

// Table lists the families, sorted by model type.
func Table() []Known {
	list := make([]Known, 0, len(families))
	for _, f := range families {
		k := Known{ModelType: f.modelType, Architectures: f.family.Architectures()}
		if m, ok := f.family.(Multimodal); ok {
			for _, t := range slices.Sorted(maps.Keys(m.Texts)) {
				if t != "" {
					k.Texts = append(k.Texts, t)
				}
			}
		}
		list = append(list, k)
	}
	return list
}
