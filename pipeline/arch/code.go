package arch

import (
	"slices"
	"strings"
)

// codeKeys are the entries of auto_map that a description takes the place of. The others name classes for other purposes,
// tokenizers among them.
var codeKeys = []string{"AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"}

// code accepts an auto_map, the checkpoint's own model code, whose classes are those that the family computes: either the
// well-known code of a model that transformers does not have, or what was published before transformers had it. Any other
// class is refused, and so is any auto_map in a family that does not call this.
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
			m.Refuse(k, "%s is code that is not known (known: %s)", show(name), strings.Join(classes, ", "))
		}
	}
}
