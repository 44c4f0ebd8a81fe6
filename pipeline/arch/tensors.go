package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// The values of Decoder.Claimed.
const (
	claimWeight    = "weight"
	claimRotary    = "rotary buffer"
	claimDuplicate = "duplicate of " // and the name of the other tensor
)

// rotarySuffix ends the names of buffers that old versions of transformers saved with the
// weights: frequencies that follow from config.json.
const rotarySuffix = ".rotary_emb.inv_freq"

// maxListedTensors bounds each list of tensors in an error.
const maxListedTensors = 10

// Duplicates maps tensors that were left out because they repeat another to the name of that other
// (lm_head.weight of a tied model to model.embed_tokens.weight). Shape and element type are known to be
// equal; the bytes are not, so readers of the weights must compare them.
func (d *Decoder) Duplicates() map[string]string {
	out := map[string]string{}
	for name, reason := range d.Claimed {
		if other, ok := strings.CutPrefix(reason, claimDuplicate); ok {
			out[name] = other
		}
	}
	return out
}

func (w Weight) shape() tensor.Shape {
	if w.Cols == 0 {
		return tensor.Shape{int64(w.Rows)}
	}
	return tensor.Shape{int64(w.Rows), int64(w.Cols)}
}

// fits reports whether a tensor of this shape can fill the slot.
func (w Weight) fits(s tensor.Shape) bool {
	if w.Cols == 0 {
		return len(s) == 1 && s[0] == int64(w.Rows)
	}
	return len(s) == 2 && s[0] == int64(w.Rows) && s[1] == int64(w.Cols)
}

// floating describes what is wrong with the element type of a weight; it returns "" for a floating-point type.
func floating(info *tensor.Info) string {
	if info.DType == tensor.F16 || info.DType == tensor.BF16 || info.DType == tensor.F32 {
		return ""
	}
	return fmt.Sprintf("%s is %v, want F16, BF16 or F32", info.Name, info.DType)
}

// skipOf returns the first skip that matches a tensor, or nil. Parts of a tensor that is used otherwise may be skipped, too.
func (d *Decoder) skipOf(name string) *Skip {
	if k := slices.IndexFunc(d.Skips, func(s Skip) bool { return s.Match.MatchString(name) }); k >= 0 {
		return &d.Skips[k]
	}
	return nil
}

// claim fills Claimed of the text model with every tensor and its use. If a slot lacks a tensor, or a tensor has no use, the
// error lists them.
func claim(m *Model, infos []tensor.Info, byName map[string]*tensor.Info) error {
	d := m.Text
	d.Claimed = make(map[string]string, len(infos))
	var missing, twice, misshapen, mistyped, unclaimed []string
	if len(byName) < len(infos) {
		for i := range infos {
			if byName[infos[i].Name] != &infos[i] {
				twice = append(twice, printable(infos[i].Name))
			}
		}
	}
	used := newCoverage(d, byName)
	fits := func(info *tensor.Info, w Weight) {
		if !w.fits(info.Shape) {
			misshapen = append(misshapen, fmt.Sprintf("%s is %v, want %v", info.Name, info.Shape, w.shape()))
		}
	}
	m.weights(func(w Weight) {
		if v := used.views[w.Tensor]; v != nil {
			m, s, t := used.take(v, w)
			missing, misshapen, mistyped = append(missing, m...), append(misshapen, s...), append(mistyped, t...)
			return
		}
		info, ok := byName[w.Tensor]
		if !ok {
			text := w.Tensor
			if !d.Tied && w == d.Head.Weight {
				text += " (tie_word_embeddings is false)"
			}
			missing = append(missing, text)
			return
		}
		fits(info, w)
		if text := floating(info); text != "" {
			mistyped = append(mistyped, text)
		}
		d.Claimed[w.Tensor] = claimWeight
	})
	for _, name := range used.tensors() {
		d.Claimed[name] = claimWeight
		if text := used.gaps(name); text != "" && d.skipOf(name) == nil {
			unclaimed = append(unclaimed, text)
		}
	}
	if head, ok := byName[d.HeadTensor]; ok && d.Tied {
		fits(head, d.Embedding)
		if table := byName[d.Embedding.Tensor]; table != nil && head.DType != table.DType {
			mistyped = append(mistyped, fmt.Sprintf("%s is %v, want %v like %s (tie_word_embeddings is true)",
				head.Name, head.DType, table.DType, d.Embedding.Tensor))
		}
		d.Claimed[head.Name] = claimDuplicate + d.Embedding.Tensor
	}
	left := map[string]int{}
	for name := range byName {
		if strings.HasSuffix(name, rotarySuffix) {
			d.Claimed[name] = claimRotary
		}
		if _, ok := d.Claimed[name]; !ok {
			if s := d.skipOf(name); s != nil {
				d.Claimed[name] = s.Reason
				if s.Warn {
					left[s.Reason]++
				}
			}
		}
		if _, ok := d.Claimed[name]; !ok {
			unclaimed = append(unclaimed, printable(name))
		}
	}
	slices.Sort(unclaimed)
	for _, reason := range slices.Sorted(maps.Keys(left)) {
		d.Notes = append(d.Notes, fmt.Sprintf("left out: %s, %d tensors", reason, left[reason]))
	}

	var found []problem
	for _, l := range []struct {
		kind  error
		title string
		names []string
	}{
		{tensor.ErrCorrupt, "missing", missing},
		{tensor.ErrCorrupt, "given twice", twice},
		{tensor.ErrCorrupt, "wrong shape", misshapen},
		{tensor.ErrUnsupported, "wrong element type", mistyped},
		{tensor.ErrUnsupported, "not part of the model", unclaimed},
	} {
		if len(l.names) > 0 {
			found = append(found, problem{l.kind, l.title + ": " + enumerate(l.names, maxListedTensors, ", ")})
		}
	}
	if found != nil {
		return problems{scope: "tensors", list: found}
	}
	return nil
}
