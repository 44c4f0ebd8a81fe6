//go:build transformers

package transformerstest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Changes that many families have in common.

// float is a number that has to have a point in the file: transformers takes an integer for none.
func float(text string) json.Number { return json.Number(text) }

// before spells rotary keys as transformers 4 does.
func before(theta any, scaling object, more ...object) object {
	out := object{"rope_parameters": removed, "rope_theta": theta}
	if scaling != nil {
		out["rope_scaling"] = scaling
	}
	return merged(append([]object{out}, more...)...)
}

// now gives all rotary parameters as transformers 5 spells them.
func now(kind string, theta any, more ...object) object {
	return object{"rope_parameters": merged(append([]object{{"rope_type": kind, "rope_theta": theta}}, more...)...)}
}

// Parameters of rotary scalings, with original lengths and wavelengths that matter within 96 positions.
var (
	yarn = object{
		"factor": 3.5, "original_max_position_embeddings": 48, "beta_fast": 8, "beta_slow": 2, "truncate": false, "attention_factor": 1.2,
	}
	yarnScaled = object{"factor": 4, "original_max_position_embeddings": 48, "mscale": 0.7, "mscale_all_dim": 1.3}
	llama3     = object{"factor": 4, "original_max_position_embeddings": 32, "low_freq_factor": 1, "high_freq_factor": 2.5}
)

// ropes are rotary tables for families that know all scalings; turned is the partial_rotary_factor of their checkpoint, if
// they have one.
func ropes(turned ...float64) (list []object) {
	more := object{}
	if len(turned) > 0 {
		more["partial_rotary_factor"] = turned[0]
	}
	return []object{
		now("default", 300, more),
		now("linear", 1e4, object{"factor": 3}, more),
		now("llama3", 500, llama3, more),
		now("yarn", 500, yarn, more),
		now("yarn", 1000, yarnScaled, more),
		now("dynamic", 300, object{"factor": 4}, more),
		before(77.5, nil, more),
		before(500, object{"type": "linear", "factor": 2.5}, more),
		before(500, merged(object{"rope_type": "llama3"}, llama3), more),
		before(2000, merged(object{"type": "yarn"}, yarn), more),
		before(500, object{"type": "yarn", "factor": 4, "mscale": 0.7}, more),
		before(500, object{"type": "dynamic", "factor": 4}, more),
	}
}

// badRopes are rotary keys that no family takes.
var badRopes = []refusal{
	{`rope_parameters.factor: missing`, now("dynamic", 1e4)},
	{`rope_parameters.rope_type: "proportional" is not supported`, now("proportional", 1e4, object{"factor": 4})},
	{`rope_parameters.factor: unknown key`, now("default", 1e4, object{"factor": 4})},
	{`rope_scaling: contradicts rope_parameters`, object{"rope_scaling": object{"type": "linear", "factor": 4}}},
}

// plain are shapes of families with heads of any size.
var plain = []object{
	{"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10, "hidden_size": 48, "num_hidden_layers": 1, "vocab_size": 321},
	{"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 80, "hidden_size": 72, "intermediate_size": 100, "num_hidden_layers": 2},
	{"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "hidden_size": 96, "num_hidden_layers": 5, "vocab_size": 333},
}

// divided are shapes of families whose heads are hidden_size / num_attention_heads wide.
var divided = []object{
	{"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 60, "num_hidden_layers": 1, "vocab_size": 321},
	{"num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 240, "intermediate_size": 100, "num_hidden_layers": 2},
	{"num_attention_heads": 8, "num_key_value_heads": 8, "hidden_size": 512, "num_hidden_layers": 5, "vocab_size": 333},
}

// with adds keys to changes, the same to all if there is one object of them, otherwise to each its own.
func with(list []object, more ...object) []object {
	out := slices.Clone(list)
	for i := range out {
		out[i] = merged(out[i], more[min(i, len(more)-1)])
	}
	return out
}

// each is one change for every value of a key.
func each(key string, values ...any) []object {
	out := make([]object, len(values))
	for i, v := range values {
		out[i] = object{key: v}
	}
	return out
}

// inner is a change of the object under a key.
func inner(key string, list []object) []object {
	out := make([]object, len(list))
	for i, change := range list {
		out[i] = object{}
		for k, v := range change {
			out[i][key+"."+k] = v
		}
	}
	return out
}

func merged(list ...object) object {
	out := object{}
	for _, o := range list {
		maps.Copy(out, o)
	}
	return out
}

// kinds writes layer_types, a letter for a layer.
func kinds(letters string) []string {
	names := map[rune]string{
		'f': "full_attention", 's': "sliding_attention", 'c': "chunked_attention", 'l': "linear_attention", 'v': "conv",
		'm': "mamba", 'a': "attention",
	}
	var out []string
	for _, r := range letters {
		out = append(out, names[r])
	}
	return out
}

// oneOf joins tables.
func oneOf[T any](lists ...[]T) []T { return slices.Concat(lists...) }

// bad is a list with one refusal, whose text begins with the key.
func bad(text string, value any) []refusal {
	key, _, _ := strings.Cut(text, ":")
	return []refusal{{text, object{key: value}}}
}
