//go:build !purego

package kernel

import "encoding/binary"

func layoutOfInt8() int8Layout {
	switch {
	case use.dotprod:
		return int8Layout{rows: 8, group: 4, pairs: use.i8mm}
	case use.neon:
		return int8Layout{rows: 1, group: 4}
	}
	return int8Layout{rows: 1}
}

// packStored spreads codes of 4 bits, two a byte, and returns their sum.
func packStored(to, codes []byte) int32 {
	var sum uint64
	for n := 0; n < len(codes); n += 4 {
		v := binary.LittleEndian.Uint32(codes[n:])
		binary.LittleEndian.PutUint32(to[n/4*panelBytes:], v)
		sum += sumBytes(uint64(v&0x0f0f0f0f) + uint64(v>>4&0x0f0f0f0f))
	}
	return int32(sum)
}

// packBytes spreads unsigned codes as signed ones, which are less by half, and returns the sum of the unsigned ones.
func packBytes(to []byte, codes []uint8, half int) int32 {
	const ones = 0x0101010101010101
	var sum uint64
	for n := 0; n < len(codes); n += 8 {
		v := binary.LittleEndian.Uint64(codes[n:])
		sum += sumBytes(v)
		// Subtracting half in each byte: with the highest bit set there is no borrow.
		v = (v | 0x80*ones) - uint64(half&127)*ones ^ (^v^uint64(half)*ones)&(0x80*ones)
		binary.LittleEndian.PutUint32(to[n/4*panelBytes:], evenBytes(v>>8))
		binary.LittleEndian.PutUint32(to[(n/4+1)*panelBytes:], evenBytes(v))
	}
	return int32(sum)
}

// int8Round is quantizeBlock of n elements, a multiple of eight.
func int8Round(codes *byte, x *float32, n, half, eight int, quant, bias float32, away bool) int {
	if away {
		return int8RoundAwaySIMD(codes, x, n, half, eight-half, quant, bias)
	}
	return int8RoundEvenSIMD(codes, x, n, half, eight-half, quant, bias)
}

func int8Tile(c *int8Call, nibbles bool, tokens int) {
	switch {
	case nibbles && tokens == 8 && use.i8mm:
		int8Nibbles8I8MM(c)
	case nibbles && use.dotprod:
		int8NibblesDotProd(tokens, c)
	case nibbles:
		int8Nibbles1NEON(c)
	case use.i8mm:
		int8BytesI8MM(tokens, c)
	case use.dotprod:
		int8BytesDotProd(tokens, c)
	default:
		int8Bytes1NEON(c)
	}
}
