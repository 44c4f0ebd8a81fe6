package arch

// AbsolutePositions returns why the same tokens may have other logits elsewhere in a context, with nothing before them;
// it is empty for most models, which depend only on distances between tokens.
func (d *Decoder) AbsolutePositions() string {
	if d.Positions.Tensor != "" {
		return "every position has a vector of its own"
	}
	for _, r := range d.Ropes {
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
				return "heads are normalised behind the rotation"
			case a.Temperature != nil:
				return "attention temperatures grow with the position"
			case a.Chunk != 0:
				return "attention ends at multiples of a position"
			case a.Cap != 0:
				return "capped attention keeps a place for every position"
			}
		}
	}
	return ""
}
