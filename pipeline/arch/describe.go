package arch

import (
	"maps"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Options are the wishes of the caller of [Describe].
type Options struct {
	// IgnoreConfig names config keys whose refusal is overridden: the key then counts as missing.
	// "rope_scaling.type" names a key within an object, "rope_scaling" the refused ones among its keys.
	// A name that is not in the file, or whose value is not refused, is an error.
	IgnoreConfig []string
}

// Describe reads the text of config.json and the facts about all tensors of the checkpoint, and says
// what the model computes. The result accounts for every config key and every tensor; otherwise the
// error lists what is left over, and wraps tensor.ErrUnsupported (not implemented), tensor.ErrCorrupt
// (contradictory), or both.
func Describe(config []byte, tensors []tensor.Info, opts Options) (*Decoder, error) {
	c, err := ParseConfig(config)
	if err != nil {
		return nil, err
	}
	c.ignore(opts.IgnoreConfig)
	f, architecture, ok := pickFamily(c)
	if !ok {
		// The keys of a model of unknown type cannot be judged.
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
	d.Ignored = slices.Sorted(maps.Keys(c.ignored))
	d.Notes = append(d.Notes, c.notes...)
	if err := claim(d, tensors, c.tensors); err != nil {
		return nil, err
	}
	return d, nil
}
