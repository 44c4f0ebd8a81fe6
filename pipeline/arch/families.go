package arch

import (
	"slices"
	"strings"
)

// Family is the code for one kind of model.
type Family interface {
	// Architectures lists the entries of "architectures" in config.json that the family describes.
	Architectures() []string
	// Describe asks c for every key that the computation depends on, lets c.Finish judge the rest,
	// and returns the description with its dimensions checked. It fills neither the names (Family,
	// ModelType, Architecture) nor Claimed and Ignored; [Describe] does.
	Describe(c *Config) (*Decoder, error)
}

// families is the table by "model_type", sorted. A model type that is not here is refused.
var families = []struct {
	modelType string
	family    Family
}{
	{"deepseek_v2", DeepSeek{V2: true}},
	{"deepseek_v3", DeepSeek{}},
	{"ernie4_5", Ernie{}},
	{"ernie4_5_moe", Ernie{Experts: true}},
	{"gemma", Gemma{}},
	{"gemma2", Gemma2{}},
	{"gemma3_text", Gemma3{}},
	{"glm", GLM{}},
	{"glm4", GLM4{}},
	{"glm4_moe", GLM4Moe{}},
	{"gpt_oss", GptOss{}},
	{"granite", Granite{}},
	{"granitemoe", Granite{Experts: true}},
	{"granitemoehybrid", GraniteHybrid{}},
	{"hunyuan_v1_dense", Hunyuan{}},
	{"hunyuan_v1_moe", Hunyuan{Experts: true}},
	{"lfm2", LFM2{}},
	{"lfm2_moe", LFM2{Experts: true}},
	{"llama", Llama{}},
	{"ministral", Mistral{"MinistralForCausalLM"}},
	{"mistral", Mistral{"MistralForCausalLM"}},
	{"olmo2", Olmo2{}},
	{"olmo3", Olmo3{}},
	{"phi3", Phi3{}},
	{"qwen2", Qwen2{}},
	{"qwen3", Qwen3{}},
	{"qwen3_5_moe_text", Qwen35{Experts: true}},
	{"qwen3_5_text", Qwen35{}},
	{"qwen3_moe", Qwen3Moe{}},
	{"qwen3_next", Qwen3Next{}},
	{"smollm3", SmolLM3{}},
}

// ModelTypes lists the values of "model_type" that are understood, sorted.
func ModelTypes() []string {
	names := make([]string, 0, len(families))
	for _, f := range families {
		names = append(names, f.modelType)
	}
	return names
}

// pickFamily reads model_type and architectures. Both must be known, whatever the caller ignores: no
// model is described by the code of another.
func pickFamily(c *Config) (f Family, modelType, architecture string) {
	modelType = c.String("model_type")
	for _, entry := range families {
		if entry.modelType == modelType {
			f = entry.family
		}
	}
	if f == nil {
		if c.Good("model_type") {
			c.unsupported("model_type", "%s is not supported (known: %s)", show(modelType), strings.Join(ModelTypes(), ", "))
		}
		return nil, "", ""
	}
	list := c.Strings("architectures")
	switch {
	case !c.Has("architectures"):
		c.missing("architectures")
	case len(list) != 1:
		c.unsupported("architectures", "%d entries, want one", len(list))
	case !slices.Contains(f.Architectures(), list[0]):
		c.unsupported("architectures", "%s is not supported for model_type %s (known: %s)",
			show(list[0]), modelType, strings.Join(f.Architectures(), ", "))
	default:
		architecture = list[0]
	}
	return f, modelType, architecture
}
