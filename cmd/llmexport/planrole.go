package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// plannedRole counts the tensors of all layers that have the same role and storage form.
type plannedRole struct {
	Role    string `json:"role"`
	Spec    string `json:"spec"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// smallRole is the role of everything that is not a matrix.
const smallRole = "norms, biases and constants"

// otherRole is the role of all matrices whose storage a budget will choose.
const otherRole = "all other matrices"

// undecidedSpec stands for the storage forms that a budget will choose.
const undecidedSpec = "budget"

// appendRole appends the part of a tensor's name that layers and experts share: "mlp.experts.down_proj".
func appendRole(role []byte, name string) []byte {
	numbered, last := false, ""
	for part := range strings.SplitSeq(name, ".") {
		switch {
		case part == "" || part == "weight" || part == "bias":
		case strings.Trim(part, "0123456789") == "":
			if !numbered { // what is before the number of the layer
				role = role[:0]
			}
			numbered = true
		default:
			if len(role) > 0 {
				role = append(role, '.')
			}
			role, last = append(role, part...), part
		}
	}
	if numbered == (len(role) == 0) { // there are no layers, or the number is that of a matrix in a list
		role = append(role[:0], last...)
	}
	return role
}

// addRole counts a tensor of a part. A mixture of experts has tens of thousands, so it allocates nothing for a role that it knows.
func (p *planned) addRole(part string, it *plan.Item, spec string) {
	var buf [128]byte
	role := append(buf[:0], smallRole...)
	if it.Matrix() {
		role = appendRole(buf[:0], it.Slot.Weight.Tensor)
	}
	if spec == undecidedSpec {
		role = append(buf[:0], otherRole...)
	}
	if part != "" {
		role = append([]byte(part+": "), role...)
	}
	at, after := -1, len(p.Roles)
	for i, r := range p.Roles {
		if r.Role != string(role) {
			continue
		}
		after = i + 1 // next to the same role in other forms
		if r.Spec == spec {
			at = i
		}
	}
	if at < 0 {
		at = after
		p.Roles = slices.Insert(p.Roles, at, plannedRole{Role: string(role), Spec: spec})
	}
	p.Roles[at].Tensors++
	p.Roles[at].Bytes += it.Size()
}

// storageText describes a storage form in words.
func storageText(spec string) string {
	switch spec {
	case undecidedSpec:
		return "chosen by run within the budget"
	case "f32":
		return "32-bit floats"
	case "f16":
		return "16-bit floats"
	}
	s, err := quant.ParseSpec(spec)
	if err != nil {
		return spec
	}
	text := fmt.Sprintf("%d bits, blocks of %d", s.Bits, s.Block)
	if s.Block == quant.WholeRow {
		text = fmt.Sprintf("%d bits, whole rows", s.Bits)
	}
	if s.Symmetric {
		text += ", symmetric"
	}
	if s.Scale == tensor.F32 {
		text += ", fp32 scales"
	}
	return text
}

// undecided marks the roles whose storage a budget will choose.
func (p *planned) undecided(pl *assemble.Planned) {
	p.Roles = []plannedRole{}
	for _, part := range pl.Plan.Parts {
		for i := range part.Items {
			it := &part.Items[i]
			spec := it.Spec()
			if stage.Budgeted(pl, part, it) {
				spec = undecidedSpec
			}
			p.addRole(part.Lowered.Name, it, spec)
		}
	}
}
