package arch

import (
	"regexp"
	"strconv"
)

// MiMo is MiMo-7B: Qwen2 with num_nextn_predict_layers additional layers for speculative decoding, which are left out.
// The class is not in transformers; that of the checkpoints (modeling_mimo.py) is otherwise Qwen2's.
type MiMo struct{}

// Architectures implements [Family].
func (MiMo) Architectures() []string { return []string{"MiMoForCausalLM"} }

// Describe implements [Family].
func (MiMo) Describe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 0)
	b.code("MiMoConfig", "MiMoModel", "MiMoForCausalLM")
	b.Only("attention_bias", "true")
	for i := range b.Range("num_nextn_predict_layers", 0, maxLayers, 0) {
		b.skip(draftHead, false, `^`+regexp.QuoteMeta(b.prefix+"mtp_layers."+strconv.Itoa(i)+"."))
	}
	return describeQwen2(b, ropeRules{})
}
