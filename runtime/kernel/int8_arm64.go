//go:build !purego

package kernel

import "encoding/binary"

// Each of these computes tiles of as many tokens as the number in its name says.

//go:noescape
func int8Nibbles1NEON(c *int8Call)

//go:noescape
func int8Bytes1NEON(c *int8Call)

//go:noescape
func int8Nibbles1DotProd(c *int8Call)

//go:noescape
func int8Nibbles2DotProd(c *int8Call)

//go:noescape
func int8Nibbles4DotProd(c *int8Call)

//go:noescape
func int8Nibbles8DotProd(c *int8Call)

//go:noescape
func int8Bytes1DotProd(c *int8Call)

//go:noescape
func int8Bytes2DotProd(c *int8Call)

//go:noescape
func int8Bytes4DotProd(c *int8Call)

//go:noescape
func int8Bytes8DotProd(c *int8Call)

//go:noescape
func int8Bytes1I8MM(c *int8Call)

//go:noescape
func int8Bytes2I8MM(c *int8Call)

//go:noescape
func int8Bytes4I8MM(c *int8Call)

//go:noescape
func int8Nibbles8I8MM(c *int8Call)

//go:noescape
func int8Bytes8I8MM(c *int8Call)

// These set the codes plus 128 of n columns, a multiple of eight and not 0, and return their sum; groups of four lie stride
// bytes apart.

//go:noescape
func int8RoundEvenNEON(dst *byte, x *float32, n, stride int, quant, bias float32) (sum int)

//go:noescape
func int8RoundAwayNEON(dst *byte, x *float32, n, stride int, quant, bias float32) (sum int)

// int8RangeNEON takes a multiple of eight elements, and not 0.
//
//go:noescape
func int8RangeNEON(x *float32, n int) (lo, hi float32)

func layoutOfInt8() int8Layout {
	switch {
	case use.dotprod:
		return int8Layout{rows: 8, group: 4}
	case use.neon:
		return int8Layout{rows: 1, group: 4}
	}
	return int8Layout{rows: 1}
}

func int8Range(x *float32, n int) (lo, hi float32) { return int8RangeNEON(x, n) }

func int8Round(dst *byte, x *float32, n, stride int, quant, bias float32, away bool) (sum int) {
	if away {
		return int8RoundAwayNEON(dst, x, n, stride, quant, bias)
	}
	return int8RoundEvenNEON(dst, x, n, stride, quant, bias)
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

func int8Tile(c *int8Call, nibbles bool, tokens int) {
	switch {
	case nibbles && tokens == 8 && use.i8mm:
		int8Nibbles8I8MM(c)
	case nibbles && tokens == 8:
		int8Nibbles8DotProd(c)
	case nibbles && tokens == 4:
		int8Nibbles4DotProd(c)
	case nibbles && tokens == 2:
		int8Nibbles2DotProd(c)
	case nibbles && use.dotprod:
		int8Nibbles1DotProd(c)
	case nibbles:
		int8Nibbles1NEON(c)
	case use.i8mm:
		int8TileI8MM(c, tokens)
	case use.dotprod:
		int8TileDotProd(c, tokens)
	default:
		int8Bytes1NEON(c)
	}
}

func int8TileI8MM(c *int8Call, tokens int) {
	switch tokens {
	case 1:
		int8Bytes1I8MM(c)
	case 2:
		int8Bytes2I8MM(c)
	case 4:
		int8Bytes4I8MM(c)
	case 8:
		int8Bytes8I8MM(c)
	}
}

func int8TileDotProd(c *int8Call, tokens int) {
	switch tokens {
	case 1:
		int8Bytes1DotProd(c)
	case 2:
		int8Bytes2DotProd(c)
	case 4:
		int8Bytes4DotProd(c)
	case 8:
		int8Bytes8DotProd(c)
	}
}
