//go:build !purego

package kernel

import "encoding/binary"

// packStored spreads codes of 4 bits, two a byte, and returns their sum.
func packStored(to, codes []byte) int32 {
	n := len(codes) &^ 15
	sum := 0
	if n > 0 {
		_ = to[(n/4-1)*panelBytes+3]
		sum = int8SpreadNibblesAVX2(&to[0], &codes[0], n)
	}
	for ; n < len(codes); n += 4 {
		v := binary.LittleEndian.Uint32(codes[n:])
		binary.LittleEndian.PutUint32(to[n/4*panelBytes:], v)
		sum += int(sumBytes(uint64(v&0x0f0f0f0f) + uint64(v>>4&0x0f0f0f0f)))
	}
	return int32(sum)
}

// packBytes spreads unsigned codes as signed ones, which are less by half, and returns the sum of the unsigned ones.
// Padding of the columns is not a weight of 0 then, but is multiplied with a 0.
func packBytes(to []byte, codes []uint8, half int) int32 {
	n := len(codes) &^ 15
	sum := 0
	if n > 0 {
		_ = to[(n/4-1)*panelBytes+3]
		sum = int8SpreadBytesAVX2(&to[0], &codes[0], n, half)
	}
	if n == len(codes) {
		return int32(sum)
	}
	v := binary.LittleEndian.Uint64(codes[n:])
	sum += int(sumBytes(v))
	// Subtracting half in each byte: with the highest bit set there is no borrow.
	const ones = 0x0101010101010101
	v = (v | 0x80*ones) - uint64(half&127)*ones ^ (^v^uint64(half)*ones)&(0x80*ones)
	binary.LittleEndian.PutUint32(to[n/4*panelBytes:], evenBytes(v>>8))
	binary.LittleEndian.PutUint32(to[(n/4+1)*panelBytes:], evenBytes(v))
	return int32(sum)
}
