//go:build !purego

package kernel

// Each of these computes tiles of as many tokens as the number in its name says.

//go:noescape
func int8Nibbles1AVX512(c *int8Call)

//go:noescape
func int8Nibbles2AVX512(c *int8Call)

//go:noescape
func int8Nibbles4AVX512(c *int8Call)

//go:noescape
func int8Nibbles8AVX512(c *int8Call)

//go:noescape
func int8Bytes1AVX512(c *int8Call)

//go:noescape
func int8Bytes2AVX512(c *int8Call)

//go:noescape
func int8Bytes4AVX512(c *int8Call)

//go:noescape
func int8Bytes8AVX512(c *int8Call)

//go:noescape
func int8Nibbles1AVXVNNI(c *int8Call)

//go:noescape
func int8Nibbles2AVXVNNI(c *int8Call)

//go:noescape
func int8Nibbles4AVXVNNI(c *int8Call)

//go:noescape
func int8Bytes1AVXVNNI(c *int8Call)

//go:noescape
func int8Bytes2AVXVNNI(c *int8Call)

//go:noescape
func int8Bytes4AVXVNNI(c *int8Call)

//go:noescape
func int8Nibbles1AVX2(c *int8Call)

//go:noescape
func int8Nibbles2AVX2(c *int8Call)

//go:noescape
func int8Nibbles4AVX2(c *int8Call)

//go:noescape
func int8Bytes1AVX2(c *int8Call)

//go:noescape
func int8Bytes2AVX2(c *int8Call)

//go:noescape
func int8Bytes4AVX2(c *int8Call)

// These set the codes plus 128 of n columns, a multiple of eight, and return their sum; groups of four lie stride bytes
// apart.

//go:noescape
func int8RoundEvenAVX2(dst *byte, x *float32, n, stride int, quant, bias float32) (sum int)

//go:noescape
func int8RoundAwayAVX2(dst *byte, x *float32, n, stride int, quant, bias float32) (sum int)

// These write the n bytes of codes, a multiple of sixteen, in pieces of four that lie panelBytes apart, and return the
// sum of the codes. Bytes become less by half and get the order of the panels.

//go:noescape
func int8SpreadNibblesAVX2(dst, codes *byte, n int) (sum int)

//go:noescape
func int8SpreadBytesAVX2(dst, codes *byte, n, half int) (sum int)

// int8RangeAVX2 takes a multiple of eight elements, and not 0.
//
//go:noescape
func int8RangeAVX2(x *float32, n int) (lo, hi float32)

func layoutOfInt8() int8Layout {
	switch {
	case use.vnni:
		return int8Layout{rows: 8, group: 4}
	case use.avx2:
		return int8Layout{rows: 4, group: 4}
	}
	return int8Layout{rows: 1}
}

func int8Range(x *float32, n int) (lo, hi float32) { return int8RangeAVX2(x, n) }

func int8Round(dst *byte, x *float32, n, stride int, quant, bias float32, away bool) (sum int) {
	if away {
		return int8RoundAwayAVX2(dst, x, n, stride, quant, bias)
	}
	return int8RoundEvenAVX2(dst, x, n, stride, quant, bias)
}

func int8Tile(c *int8Call, nibbles bool, tokens int) {
	switch {
	case use.vnni:
		int8TileAVX512(c, nibbles, tokens)
	case use.avxvnni:
		int8TileAVXVNNI(c, nibbles, tokens)
	default:
		int8TileAVX2(c, nibbles, tokens)
	}
}

func int8TileAVX512(c *int8Call, nibbles bool, tokens int) {
	switch {
	case nibbles && tokens == 1:
		int8Nibbles1AVX512(c)
	case nibbles && tokens == 2:
		int8Nibbles2AVX512(c)
	case nibbles && tokens == 4:
		int8Nibbles4AVX512(c)
	case nibbles && tokens == 8:
		int8Nibbles8AVX512(c)
	case tokens == 1:
		int8Bytes1AVX512(c)
	case tokens == 2:
		int8Bytes2AVX512(c)
	case tokens == 4:
		int8Bytes4AVX512(c)
	case tokens == 8:
		int8Bytes8AVX512(c)
	}
}

func int8TileAVXVNNI(c *int8Call, nibbles bool, tokens int) {
	switch {
	case nibbles && tokens == 1:
		int8Nibbles1AVXVNNI(c)
	case nibbles && tokens == 2:
		int8Nibbles2AVXVNNI(c)
	case nibbles && tokens == 4:
		int8Nibbles4AVXVNNI(c)
	case tokens == 1:
		int8Bytes1AVXVNNI(c)
	case tokens == 2:
		int8Bytes2AVXVNNI(c)
	case tokens == 4:
		int8Bytes4AVXVNNI(c)
	}
}

func int8TileAVX2(c *int8Call, nibbles bool, tokens int) {
	switch {
	case nibbles && tokens == 1:
		int8Nibbles1AVX2(c)
	case nibbles && tokens == 2:
		int8Nibbles2AVX2(c)
	case nibbles && tokens == 4:
		int8Nibbles4AVX2(c)
	case tokens == 1:
		int8Bytes1AVX2(c)
	case tokens == 2:
		int8Bytes2AVX2(c)
	case tokens == 4:
		int8Bytes4AVX2(c)
	}
}
