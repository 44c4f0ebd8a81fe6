package arch

import (
	"fmt"
	"maps"
	"slices"
)

// AbsolutePositions returns why the same tokens may have other logits elsewhere in a context, with nothing before them;
// it is empty for most models, which depend only on distances between tokens.
func (d *Decoder) AbsolutePositions() string {
	if d.Positions.Tensor != "" {
		return "every position has a vector of its own"
	}
	for _, r := range d.Ropes {
		if r.Axes != nil {
			return "positions are counted from the first token of the conversation"
		}
		if r.Long != nil {
			return "rotary factors depend on the length"
		}
	}
	for _, layer := range d.Layers {
		for _, b := range layer {
			a, ok := b.Block.(*Attention)
			if !ok {
				continue
			}
			switch {
			case a.NormAfter && a.Rope != nil && (a.QNorm != nil || a.KNorm != nil):
				return "heads are normalized after the rotation"
			case a.Temperature != nil:
				return "attention temperatures grow with the position"
			case a.Chunk != 0:
				return "attention ends at multiples of a position"
			case a.Cap != 0:
				return "capped attention depends on the length of the cache"
			}
		}
	}
	return ""
}

// Bounds returns the positions from which attention sees less than everything before it, or uses other rotary frequencies;
// ascending.
func (d *Decoder) Bounds() []int {
	at := map[int]bool{}
	rope := func(r *Rope) {
		if r != nil && r.Long != nil {
			at[r.Original] = true
		}
	}
	for _, layer := range d.Layers {
		for _, b := range layer {
			switch a := b.Block.(type) {
			case *Attention:
				at[a.Window], at[a.Chunk] = true, true
				rope(a.Rope)
			case *LatentAttention:
				rope(a.Rope)
			}
		}
	}
	delete(at, 0)
	return slices.Sorted(maps.Keys(at))
}

// Kinds returns the first layer of each kind: those of one kind have the same blocks, whose attention treats positions alike.
func (d *Decoder) Kinds() (layers []int) {
	seen := map[string]bool{}
	for i, layer := range d.Layers {
		kind := ""
		for _, b := range layer {
			kind += fmt.Sprintf("%T ", b.Block)
			if a, ok := b.Block.(*Attention); ok {
				kind += fmt.Sprint(a.Window, a.Chunk, a.Temperature != nil, a.Slopes != nil)
				if a.Rope != nil {
					kind += fmt.Sprint(*a.Rope)
				}
			}
		}
		if !seen[kind] {
			seen[kind] = true
			layers = append(layers, i)
		}
	}
	return layers
}
