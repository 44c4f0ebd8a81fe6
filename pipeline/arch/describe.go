package arch

import (
	"maps"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Model is what a checkpoint describes.
type Model struct {
	// Text is the language model. It also has what is known about the checkpoint as a whole.
	Text *Decoder
	// Towers are the encoders of other input. Those that no family describes are left out, with a note.
	Towers []*Tower
	// Ear is the encoder of sound; nil without one.
	Ear *Ear
}

// weights calls f with every slot that needs a tensor.
func (m *Model) weights(f func(Weight)) {
	m.Text.weights(f)
	for _, t := range m.Towers {
		t.weights(f)
	}
	if m.Ear != nil {
		m.Ear.weights(f)
	}
}

// Options of [Describe].
type Options struct {
	// IgnoreConfig names config keys that are accepted although they are unsupported: such a key counts as missing.
	// "rope_scaling.type" names a key within an object, "rope_scaling" all unsupported keys of the object.
	// A name that is not in the file, or whose value is supported, is an error.
	IgnoreConfig []string
	// Modules are those of a checkpoint of sentence-transformers; nil if it has no modules.json.
	Modules []Module
}

// Describe reads the text of config.json and the names, shapes and types of all tensors of the checkpoint,
// and describes the computation of the model. The result accounts for every config key and every tensor. If any are left
// over, the error lists them and wraps tensor.ErrUnsupported (not implemented), tensor.ErrCorrupt
// (contradictory), or both.
func Describe(config []byte, tensors []tensor.Info, opts Options) (*Model, error) {
	c, err := ParseConfig(config)
	if err != nil {
		return nil, err
	}
	c.ignore(opts.IgnoreConfig)
	f, architecture, ok := pickFamily(c)
	if !ok {
		// The keys of an unknown model type cannot be checked.
		if near := closest(f.modelType, tensors); f.modelType != "" && near != "" {
			c.problems = append(c.problems, problem{nil, "the closest family is " + near})
		}
		return nil, problems{scope: configName, list: c.problems}
	}
	c.know(f.modelType, tensor.ByName(tensors))
	d, err := f.describe(c)
	if err != nil {
		return nil, err
	}
	d.Family, d.ModelType, d.Architecture = f.modelType, f.modelType, architecture
	if err := d.pool(opts.Modules); err != nil {
		return nil, err
	}
	d.Ignored = slices.Sorted(maps.Keys(c.ignored))
	d.Notes = append(d.Notes, c.notes...)
	m := &Model{Text: d, Towers: c.towers, Ear: c.ear}
	if err := claim(m, tensors, c.tensors); err != nil {
		return nil, err
	}
	return m, nil
}
