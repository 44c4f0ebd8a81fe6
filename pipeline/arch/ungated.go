package arch

import (
	"maps"
	"slices"
)

// plainMLP returns an ungated MLP: down · act(up · x).
func (b *builder) plainMLP(up, down string, intermediate int, bias bool) *MLP {
	return &MLP{
		Intermediate: intermediate,
		Activation:   b.activation,
		Up:           b.linear(up, intermediate, b.d.Hidden, bias),
		Down:         b.linear(down, b.d.Hidden, intermediate, bias),
	}
}

// geluNames are the names of the two forms of GELU in transformers.
var geluNames = map[Activation][]string{
	GELU:     {"gelu"},
	GELUTanh: {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"},
}

// ungatedNames are the names of the activations of ungated MLPs in transformers.
var ungatedNames = map[Activation][]string{
	GELU: geluNames[GELU], GELUTanh: geluNames[GELUTanh], ReLU: {"relu"}, ReLU2: {"relu2"}, SiLU: {"silu", "swish"},
}

// geluKeys is mlpKeys for an MLP with either form of GELU; missing is the default of the family's class.
func (b *builder) geluKeys(key string, missing Activation) {
	b.mlpKeys(key, append(slices.Clone(geluNames[GELU]), geluNames[GELUTanh]...)...)
	b.readActivation(key, missing, geluNames)
}

// ungatedKeys reads the activation of an MLP that may have any of ungatedNames; missing is the default of the family's
// class.
func (b *builder) ungatedKeys(key string, missing Activation) {
	if !b.readActivation(key, missing, ungatedNames) {
		name, _ := b.OptString(key)
		known := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(ungatedNames))...)))
		b.Refuse(key, "%s is not supported, only %s", show(name), quoted(known))
	}
}

// readActivation sets the activation that a key names, and reports whether it is known; an empty name stands for
// missing.
func (b *builder) readActivation(key string, missing Activation, known map[Activation][]string) bool {
	b.activation = missing
	name, ok := b.OptString(key)
	if !ok {
		return true
	}
	for form, names := range known {
		if slices.Contains(names, name) {
			b.activation = form
			return true
		}
	}
	return false
}

// sameNorm is the layer of families with parallel attention and MLP and a common norm: h += Attention(n) + MLP(n) with
// n = Norm(h).
func sameNorm(n *Norm, attention, mlp Block) Layer {
	return Layer{{Norm: n, Block: attention}, {Parallel: true, Norm: n, Block: mlp}}
}

// postNorm is the layer of families that normalize the outputs of blocks instead of their inputs.
func (b *builder) postNorm(p string, attention, mlp Block) Layer {
	return Layer{
		{Block: attention, PostNorm: b.norms(p + "post_attention_layernorm")},
		{Block: mlp, PostNorm: b.norms(p + "post_feedforward_layernorm")},
	}
}
