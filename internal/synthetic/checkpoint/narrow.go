package checkpoint

import (
	"math"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// narrow are the elements of a tensor that is not BF16: codes, their scales, and vectors of F32.
type narrow struct {
	*weights
	info tensor.Info
}

func (n *narrow) ReadAt(b []byte, off int64) (int, error) {
	size := n.info.DType.Size()
	for k := range b {
		i := off + int64(k)
		b[k] = byte(n.element(uint64(i/size)) >> (8 * (i % size)))
	}
	return len(b), nil
}

// element is element i, its low bytes first.
func (n *narrow) element(i uint64) uint32 {
	h := mix(n.seed + i)
	switch {
	case n.info.DType == tensor.F8E4M3:
		return uint32(h&0x80 | h>>8&0x3f) // up to 1.875, and no NaN
	case n.info.DType == tensor.U8 && strings.HasSuffix(n.info.Name, "_scales"):
		return uint32(119 + h%4) // 2^-8 to 2^-5
	case n.info.DType == tensor.U8:
		return uint32(h & 0xff)
	case strings.HasSuffix(n.info.Name, "_scale_inv"):
		return math.Float32bits(float32(1+h%16) / 512)
	}
	return uint32(n.at(i)) << 16
}
