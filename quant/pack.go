package quant

import (
	"encoding/binary"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Pack writes codes as MNN stores them: a stream of bits bits per code, most significant bit first.
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

// Unpack reverses Pack.
func Unpack(codes []uint8, src []byte, bits int) {
	mask := uint32(1)<<bits - 1
	var have, acc uint32
	for i := range codes {
		for have < uint32(bits) {
			acc, src, have = acc<<8|uint32(src[0]), src[1:], have+8
		}
		have -= uint32(bits)
		codes[i] = uint8(acc >> have & mask)
	}
}

// UnpackAlpha reverses PackAlpha.
func UnpackAlpha(b Blocks, src []byte, s Spec) {
	at := func(i int) float32 {
		if s.Scale == tensor.F16 {
			return kernel.F16Value(binary.LittleEndian.Uint16(src[2*i:]))
		}
		return math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
	for i := range b.Scale {
		if s.Symmetric {
			b.Scale[i] = at(i)
		} else {
			b.Zero[i], b.Scale[i] = at(2*i), at(2*i+1)
		}
	}
}
