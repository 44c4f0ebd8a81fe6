package arch

import (
	"encoding/json"
	"regexp"
	"strconv"
)

// headDim returns the default of head_dim: a size that the family has, or, for null, 0 for hidden_size / heads.
func (b *builder) headDim(missing int) int {
	if b.Null("head_dim") {
		return 0
	}
	return missing
}

// orZero returns x for fields of which 0 stands for 1.
func orZero(x float64) float64 {
	if x == 1 {
		return 0
	}
	return x
}

// number reads an optional number; missing if it is absent or null.
func (b *builder) number(key string, lo, hi, missing float64) float64 {
	if f, ok := b.OptFloat(key, lo, hi); ok {
		return f
	}
	return missing
}

// same requires that an optional key repeats the number of another key: configs written by a family's own code have
// duplicates.
func (c *Config) same(want float64, keys ...string) {
	for _, key := range keys {
		v := c.take(key)
		if v == nil {
			continue
		}
		number, _ := v.(json.Number)
		if f, err := strconv.ParseFloat(string(number), 64); err != nil || f != want {
			c.Refuse(key, "%s is not supported, only %g", show(v), want)
		}
	}
}

// eachLayer reads a key with one integer for all layers, or with a list of one for each.
func (b *builder) eachLayer(key string, max, missing int) []int {
	out := make([]int, b.layers)
	if list, ok := b.fields.values[key].([]any); ok {
		if n := b.Ints(key, 1, max); len(n) == len(out) {
			return n
		}
		if b.Good(key, "num_hidden_layers") {
			b.Wrong(key, "%d entries for %d layers", len(list), b.layers)
		}
	} else if n, ok := b.OptInt(key, max); ok {
		missing = n
	}
	for i := range out {
		out[i] = missing
	}
	return out
}

// chosen marks the layers in a list of indices.
func (b *builder) chosen(key string) []bool {
	out := make([]bool, b.layers)
	for _, i := range b.Ints(key, 0, maxLayers) {
		if i < len(out) {
			out[i] = true
		}
	}
	return out
}

// fusedMLP returns a gated MLP whose gate and up are one matrix, gate rows first. mlpBias gives it biases.
func (b *builder) fusedMLP(gateUp, down string, intermediate int) *MLP {
	return &MLP{
		Intermediate: intermediate,
		Activation:   b.activation,
		Gate:         b.part(gateUp+".gate", gateUp, b.d.Hidden, b.mlpBias, Run{Start: 0, Count: intermediate}),
		Up:           b.part(gateUp+".up", gateUp, b.d.Hidden, b.mlpBias, Run{Start: intermediate, Count: intermediate}),
		Down:         b.linear(down, b.d.Hidden, intermediate, b.mlpBias),
	}
}

// vector returns a weight of n elements with its whole name.
func vector(name string, n int) Weight { return Weight{Tensor: name, Rows: n} }

// mapped returns a vector of n elements, each a function of one of the tensor's.
func (b *builder) mapped(name, tensor string, n int, f Map) Weight {
	return b.view(View{Name: name, Tensor: tensor, Rows: n, Map: f})
}

// skip leaves out the tensors whose names match.
func (b *builder) skip(reason string, warn bool, pattern string) {
	b.d.Skips = append(b.d.Skips, Skip{Match: regexp.MustCompile(pattern), Reason: reason, Warn: warn})
}

// draftHead is the reason for leaving out layers for speculative decoding.
const draftHead = "draft head"

// skipDrafts leaves out the layers after the last one, whose number is in the file.
func (b *builder) skipDrafts(keys ...string) {
	n := 1
	for _, key := range keys {
		n = b.Range(key, 0, maxLayers, n)
	}
	for i := range n {
		b.skip(draftHead, false, `^`+regexp.QuoteMeta(b.prefix+layerName(b.layers+i)))
	}
}
