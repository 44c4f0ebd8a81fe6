package quant

import (
	"encoding/binary"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Pack writes codes as MNN stores them: one most-significant-bit-first stream of bits bits a code.
// len(codes)*bits must be a multiple of 8; dst has len(codes)*bits/8 bytes.
func Pack(dst []byte, codes []uint8, bits int) {
	if len(codes)*bits != len(dst)*8 {
		panic("internal error: pack: lengths do not fit")
	}
	switch bits {
	case 8:
		copy(dst, codes)
	case 4:
		for i := range dst {
			dst[i] = codes[2*i]<<4 | codes[2*i+1]
		}
	case 2:
		for i := range dst {
			c := codes[4*i : 4*i+4 : 4*i+4]
			dst[i] = c[0]<<6 | c[1]<<4 | c[2]<<2 | c[3]
		}
	default:
		var acc uint32
		n := 0
		for _, c := range codes {
			acc = acc<<bits | uint32(c)
			n += bits
			for n >= 8 {
				n -= 8
				dst[0] = byte(acc >> n)
				dst = dst[1:]
			}
		}
	}
}

// PackAlpha writes scales, or pairs of zero term and scale, in the spec's scale type, little endian.
func PackAlpha(dst []byte, b Blocks, s Spec) {
	put := func(i int, v float32) {
		if s.Scale == tensor.F16 {
			binary.LittleEndian.PutUint16(dst[2*i:], kernel.F16Bits(v))
		} else {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	}
	for i, v := range b.Scale {
		if s.Symmetric {
			put(i, v)
		} else {
			put(2*i, b.Zero[i])
			put(2*i+1, v)
		}
	}
}
