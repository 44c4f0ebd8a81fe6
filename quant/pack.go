package quant

import (
	"encoding/binary"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Pack writes codes as MNN stores them: one most-significant-bit-first stream of bits bits a code.
// len(codes)*bits must be a multiple of 8; dst has len(codes)*bits/8 bytes.
func Pack(dst []byte, codes []uint8, bits int) { kernel.PackCodes(dst, codes, bits) }

// PackAlpha writes scales, or pairs of zero term and scale, in the spec's scale type, little endian.
func PackAlpha(dst []byte, b Blocks, s Spec) {
	var pairs [2 * groupBlocks]float32
	for n := 0; n < len(b.Scale); n += groupBlocks {
		part := b.Scale[n:min(n+groupBlocks, len(b.Scale))]
		terms := part
		if !s.Symmetric {
			zero := b.Zero[n:][:len(part)]
			for i, v := range part {
				pairs[2*i], pairs[2*i+1] = zero[i], v
			}
			terms = pairs[:2*len(part)]
		}
		size := len(terms) * int(s.Scale.Size())
		if s.Scale == tensor.F16 {
			kernel.F32ToF16(dst[:size], terms)
		} else {
			for i, v := range terms {
				binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
			}
		}
		dst = dst[size:]
	}
}
