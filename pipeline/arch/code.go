package arch

import (
	"slices"
	"strings"
)

// codeKeys are the entries of auto_map that a description replaces. The others are classes for other purposes,
// including tokenizers.
var codeKeys = []string{"AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"}

// code accepts an auto_map, the checkpoint's own model code, if its classes are those that the family computes: the
// well-known code of a model that is not in transformers, or code published before the model was. Any other class is
// rejected, and so is any auto_map in a family that does not call this.
func (c *Config) code(classes ...string) {
	const key = "auto_map"
	m := c.Object(key)
	if m == nil {
		return
	}
	for _, k := range m.fields.keys {
		if !slices.Contains(codeKeys, k) {
			m.Inert(k)
			continue
		}
		// "modeling_phi.PhiForCausalLM", or of another repository "microsoft/phi-2--modeling_phi.PhiForCausalLM"
		name, ok := m.OptString(k)
		class := name[strings.LastIndexByte(name, '.')+1:]
		if ok && !slices.Contains(classes, class) && m.Good(k) {
			m.Refuse(k, "%s is unknown code (known: %s)", show(name), strings.Join(classes, ", "))
		}
	}
}
