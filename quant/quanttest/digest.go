package quanttest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"

	"github.com/llmexport/llmexport/quant"
)

// Digest returns a hash of what a method makes of the layer in all storage forms, of its scales and of its rotations: the
// same on every machine. It is empty for a method that does none of these.
func Digest(m quant.Method) (string, error) {
	h, any := sha256.New(), false
	add := func(bits uint64) {
		any = true
		h.Write(binary.LittleEndian.AppendUint64(nil, bits))
	}
	floats := func(x []float32) {
		for _, v := range x {
			add(uint64(math.Float32bits(v)))
		}
	}
	w, _ := layer()
	if q, ok := m.(quant.Quantizer); ok {
		for _, s := range specs(q, false) {
			b, _, err := encode(q, w, s, driftedFor(q))
			if err != nil {
				return "", err
			}
			for _, c := range b.Codes {
				add(uint64(c))
			}
			floats(b.Scale)
			floats(b.Zero)
		}
	}
	if f, ok := m.(quant.Folder); ok {
		got, err := f.Fold(site(), quant.RTN{}, 1)
		if err != nil {
			return "", err
		}
		floats(got.Channels)
		floats([]float32{float32(got.Before), float32(got.After)})
	}
	if r, ok := m.(quant.Rotator); ok {
		for _, n := range []int{64, 92, 96, 112} {
			for _, h := range []*quant.Hadamard{r.Stream(n), r.Head(n)} {
				x := make([]float64, n)
				x[0] = 1
				if h != nil {
					h.Apply(x)
				}
				for _, v := range x {
					add(math.Float64bits(v))
				}
			}
		}
	}
	if !any {
		return "", nil
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}
