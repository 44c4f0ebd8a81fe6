package serve

import (
	"errors"
	"slices"

	"github.com/llmexport/llmexport/runtime/template"
)

// partFields returns the texts of a part of content that has nothing but its type and an object by the name of member, which has only such
// fields. needs names those that it cannot do without, for errors.
func partFields(part *template.Object, member, needs string, fields ...string) (map[string]string, error) {
	for name := range part.All() {
		if name != "type" && name != member {
			return nil, errors.New("this server does not support " + name + " of a part")
		}
	}
	value, _ := part.Get(member)
	o, ok := value.(*template.Object)
	if !ok {
		return nil, errors.New(member + " must be an object with " + needs)
	}
	texts := map[string]string{}
	for name, v := range o.All() {
		text, ok := v.(string)
		if !ok {
			return nil, errors.New(name + " of " + member + " must be a text")
		}
		if !slices.Contains(fields, name) {
			return nil, errors.New("this server does not support " + name + " of " + member)
		}
		texts[name] = text
	}
	return texts, nil
}
