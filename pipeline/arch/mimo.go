package arch

import (
	"regexp"
	"strconv"
)

// describeMiMo describes MiMo-7B: Qwen2 with num_nextn_predict_layers additional layers for speculative decoding, which
// are left out. The class is not in transformers; that of the checkpoints (modeling_mimo.py) is otherwise Qwen2's.
func describeMiMo(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 0)
	b.code("MiMoConfig", "MiMoModel", "MiMoForCausalLM")
	b.Only("attention_bias", "true")
	for i := range b.Range("num_nextn_predict_layers", 0, maxLayers, 0) {
		b.skip(draftHead, false, `^`+regexp.QuoteMeta(b.prefix+"mtp_layers."+strconv.Itoa(i)+"."))
	}
	return finishQwen2(b, ropeRules{})
}
