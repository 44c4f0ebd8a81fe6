package arch

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// expertTensors describes the names of expert tensors, after a prefix like "model.layers.3.mlp.experts.". There is one
// for every matrix of every expert, "7.gate_proj.weight", as in most checkpoints; or one for all experts, of three
// dimensions: gate and up together, [experts, 2*intermediate, hidden], and down, [experts, hidden, intermediate].
// Input-major ones have their last two dimensions swapped. The names in a checkpoint determine its form, and the shapes
// the order.
type expertTensors struct {
	// Gate, Up and Down are the names within one expert, without ".weight".
	Gate, Up, Down string
	// GateUp and StackedDown are whole names after the prefix.
	GateUp, StackedDown string
	// InputMajor decides if the shapes fit both orders.
	InputMajor bool
	// Transposed, if not empty, is the suffix of stacked tensors in the order that is not input-major, regardless of
	// the shapes. It does not apply to the names of biases.
	Transposed string
	// Interleaved: the even rows of the stacked gate and up are gate.
	Interleaved bool
	// Stacked: there is no other form.
	Stacked bool
	// Bias: every matrix has one. Those of stacked ones have the suffix "_bias".
	Bias bool
}

// usualExperts are the names of most families.
var usualExperts = expertTensors{
	Gate: "gate_proj", Up: "up_proj", Down: "down_proj", GateUp: "gate_up_proj", StackedDown: "down_proj",
}

// experts describes n experts. Problems of their tensors are recorded for [builder.finish], under the name of the
// first.
func (b *builder) experts(p string, n, intermediate int, names expertTensors) []MLP {
	if n > maxExperts {
		b.breaks(tensor.ErrUnsupported, "%d experts are more than %d", n, maxExperts)
		return nil
	}
	if _, ok := b.Tensor(p + names.GateUp); names.Stacked || ok && names.GateUp != "" {
		return b.stackedExperts(p, n, intermediate, names)
	}
	out := make([]MLP, 0, n)
	for j := range n {
		q := p + strconv.Itoa(j) + "."
		m := MLP{
			Intermediate: intermediate,
			Activation:   b.activation,
			Gate:         b.linear(q+names.Gate, intermediate, b.d.Hidden, names.Bias),
			Up:           b.linear(q+names.Up, intermediate, b.d.Hidden, names.Bias),
			Down:         b.linear(q+names.Down, b.d.Hidden, intermediate, names.Bias),
		}
		// One by one: a config may promise more experts than any checkpoint has.
		for _, w := range []Weight{m.Gate.Weight, m.Up.Weight, m.Down.Weight} {
			if info, ok := b.Tensor(w.Tensor); !ok {
				b.breaks(tensor.ErrCorrupt, "missing: %s", w.Tensor)
				return nil
			} else if !w.fits(info.Shape) {
				b.breaks(tensor.ErrCorrupt, "wrong shape: %s is %v, want %v", w.Tensor, info.Shape, w.shape())
				return nil
			}
		}
		out = append(out, m)
	}
	return out
}

// stackedExperts is experts for stacked tensors.
func (b *builder) stackedExperts(p string, n, intermediate int, names expertTensors) []MLP {
	gateUp, down, suffix := p+names.GateUp, p+names.StackedDown, ""
	if _, ok := b.Tensor(gateUp + names.Transposed); ok {
		suffix = names.Transposed
	}
	gateUpInfo, haveUp := b.Tensor(gateUp + suffix)
	downInfo, haveDown := b.Tensor(down + suffix)
	if !haveUp || !haveDown {
		missing := gateUp
		if haveUp {
			missing = down
		}
		b.breaks(tensor.ErrCorrupt, "missing: %s", missing+suffix)
		return nil
	}
	// want returns the shape of a tensor in one of the orders.
	want := func(rows, cols int, swapped bool) tensor.Shape {
		if swapped {
			rows, cols = cols, rows
		}
		return tensor.Shape{int64(n), int64(rows), int64(cols)}
	}
	h := b.d.Hidden
	swapped := names.InputMajor
	for _, t := range []struct {
		info       tensor.Info
		rows, cols int
	}{{downInfo, h, intermediate}, {gateUpInfo, 2 * intermediate, h}} { // gate and up decide
		turned := slices.Equal(t.info.Shape, want(t.rows, t.cols, true))
		if plain := slices.Equal(t.info.Shape, want(t.rows, t.cols, false)); plain != turned {
			swapped = turned
		}
	}
	if suffix != "" {
		swapped = false
	}
	for _, t := range []struct {
		info tensor.Info
		want tensor.Shape
	}{{gateUpInfo, want(2*intermediate, h, swapped)}, {downInfo, want(h, intermediate, swapped)}} {
		if !slices.Equal(t.info.Shape, t.want) {
			b.breaks(tensor.ErrCorrupt, "wrong shape: %s is %v, want %v", t.info.Name, t.info.Shape, t.want)
			return nil
		}
	}
	out := make([]MLP, 0, n)
	for j := range n {
		// cut returns count outputs of a tensor with all outputs of an expert, from first on, step apart.
		cut := func(name, of string, all, cols, first, count, step int) Linear {
			v := View{Name: p + strconv.Itoa(j) + "." + name + ".weight", Tensor: of + suffix, Rows: count, Cols: cols, Transposed: swapped}
			if swapped {
				v.From, v.Runs = j*cols, []Run{{Start: first, Count: count, Step: step}}
			} else {
				v.Runs = []Run{{Start: j*all + first, Count: count, Step: step}}
			}
			l := Linear{Weight: b.view(v)}
			if names.Bias {
				l.Bias = b.view(View{
					Name: p + strconv.Itoa(j) + "." + name + ".bias", Tensor: of + "_bias",
					Rows: count, Runs: []Run{{Start: j*all + first, Count: count, Step: step}},
				})
			}
			return l
		}
		m := MLP{Intermediate: intermediate, Activation: b.activation, Down: cut(names.Down, down, h, intermediate, 0, h, 0)}
		up, step := intermediate, 0
		if names.Interleaved {
			up, step = 1, 2
		}
		m.Gate = cut(names.Gate, gateUp, 2*intermediate, h, 0, intermediate, step)
		m.Up = cut(names.Up, gateUp, 2*intermediate, h, up, intermediate, step)
		out = append(out, m)
	}
	return out
}

// expertKeys reads the number of experts, under the first existing key, and the number of experts per token.
func (b *builder) expertKeys(topK string, missingTopK int, missing int, keys ...string) (n, k int) {
	n = missing
	seen := ""
	for _, key := range keys {
		v, ok := b.OptInt(key, maxExperts)
		switch {
		case !ok:
		case seen == "":
			n, seen = v, key
		case v != n:
			b.Wrong(key, "%d contradicts %s %d", v, seen, n)
		}
	}
	var ok bool
	if k, ok = b.OptInt(topK, maxExperts); !ok {
		k = missingTopK
	}
	if k > n && b.Good(append(keys, topK)...) {
		b.Wrong(topK, "%d of %d experts", k, n)
	}
	return n, k
}

// breaks records a problem of a tensor.
func (b *builder) breaks(kind error, format string, args ...any) {
	b.broken = append(b.broken, problem{kind, fmt.Sprintf(format, args...)})
}
