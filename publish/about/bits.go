package about

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/publish/manifest"
)

// BitMap holds the mean bits of weights by layer and role, such as q, down or experts up.
type BitMap struct {
	Layers int      `json:"layers"`
	Roles  []string `json:"roles"`
	// Bits has a row for every role, and 0 where a layer has no such matrix.
	Bits [][]float64 `json:"bits"`
}

// ops of layers, as lowering names them, and widths of storage forms.
var (
	layerOp = regexp.MustCompile(`^/layers\.(\d+)/(.+)/Linear$`)
	widthOf = regexp.MustCompile(`^(?:w(\d+)-.+|f16)$`)
)

// roleOrder is the order of the roles that most models have.
var roleOrder = []string{"q", "k", "v", "qkv", "o", "gate", "up", "gate_up", "down"}

// maxLayers bounds the layers of a map.
const maxLayers = 1024

// BitsOf returns the map of the matrices in layers, nil if there are none.
func BitsOf(tensors []manifest.Tensor) *BitMap {
	type sum struct{ bits, weights float64 }
	sums := map[string]map[int]sum{}
	m := &BitMap{}
	for _, t := range tensors {
		op := layerOp.FindStringSubmatch(t.Op)
		bits, ok := specBits(t.Spec)
		if op == nil || !ok {
			continue
		}
		layer, err := strconv.Atoi(op[1])
		if err != nil || layer >= maxLayers {
			continue
		}
		role := roleOf(op[2])
		if sums[role] == nil {
			sums[role] = map[int]sum{}
			m.Roles = append(m.Roles, role)
		}
		s := sums[role][layer]
		weights := float64(t.Size) / float64(bits) // in proportion to their number
		sums[role][layer] = sum{s.bits + float64(weights*float64(bits)), s.weights + weights}
		m.Layers = max(m.Layers, layer+1)
	}
	if m.Layers == 0 {
		return nil
	}
	rank := func(role string) int {
		i := slices.Index(roleOrder, role[strings.LastIndexByte(role, ' ')+1:])
		if i < 0 {
			i = len(roleOrder)
		}
		if strings.Contains(role, " ") {
			i += 2 * len(roleOrder)
		}
		return i
	}
	slices.SortStableFunc(m.Roles, func(a, b string) int { return rank(a) - rank(b) })
	for _, role := range m.Roles {
		row := make([]float64, m.Layers)
		for layer, s := range sums[role] {
			row[layer] = s.bits / s.weights
		}
		m.Bits = append(m.Bits, row)
	}
	return m
}

// specBits returns the bits of a storage form of matrices; ok is false for other forms.
func specBits(spec string) (bits int, ok bool) {
	width := widthOf.FindStringSubmatch(spec)
	if width == nil {
		return 0, false
	}
	bits, err := strconv.Atoi(cmp.Or(width[1], "16"))
	return bits, err == nil && bits > 0 && bits <= 16
}

// roleOf returns the role of an op by its path in the layer.
func roleOf(path string) string {
	parts := strings.Split(path, "/")
	name := strings.ReplaceAll(parts[len(parts)-1], "_proj", "")
	switch {
	case strings.Contains(path, "/shared_expert/"):
		return "shared " + name
	case strings.Contains(path, "/experts."):
		return "experts " + name
	case parts[0] == "self_attn" && (name == "gate" || name == "up" || name == "down"):
		return "attention " + name
	}
	return name
}
