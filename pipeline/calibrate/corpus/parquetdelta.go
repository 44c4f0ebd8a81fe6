package corpus

import (
	"encoding/binary"
)

// plainOf turns n byte arrays in DELTA_LENGTH_BYTE_ARRAY, all lengths and then all bytes, into PLAIN.
// https://parquet.apache.org/docs/file-format/data-pages/encodings/
func plainOf(b []byte, n int) ([]byte, bool) {
	lengths, b, ok := readDeltas(b, n)
	if !ok {
		return nil, false
	}
	plain := make([]byte, 0, len(b)+4*n)
	for _, l := range lengths {
		if l < 0 || l > int64(len(b)) {
			return nil, false
		}
		plain = binary.LittleEndian.AppendUint32(plain, uint32(l))
		plain = append(plain, b[:l]...)
		b = b[l:]
	}
	return plain, true
}

// readDeltas reads n integers in DELTA_BINARY_PACKED and returns what follows them: a header with the first, and
// blocks of differences, each with its least one and a width of bits for each of its parts.
func readDeltas(b []byte, n int) ([]int64, []byte, bool) {
	ok := true
	unsigned := func() uint64 {
		v, k := binary.Uvarint(b)
		if k <= 0 {
			ok = false
			return 0
		}
		b = b[k:]
		return v
	}
	signed := func() int64 {
		v := unsigned()
		return int64(v>>1) ^ -int64(v&1)
	}
	block, parts, count, last := unsigned(), unsigned(), unsigned(), signed()
	if !ok || count != uint64(n) || block == 0 || block > maxPageValues || parts == 0 || parts > block || block%(8*parts) != 0 {
		return nil, nil, false
	}
	if n == 0 {
		return nil, b, true
	}
	all := append(make([]int64, 0, n), last)
	for len(all) < n {
		least := signed()
		if !ok || uint64(len(b)) < parts {
			return nil, nil, false
		}
		widths := b[:parts]
		b = b[parts:]
		for _, w := range widths {
			if len(all) == n {
				break // parts without values have no bytes
			}
			size := int(block/parts) * int(w) / 8
			if w > 64 || size > len(b) {
				return nil, nil, false
			}
			packed := bitReader{b: b[:size]}
			b = b[size:]
			for range min(int(block/parts), n-len(all)) {
				last += least + int64(packed.read(int(w)))
				all = append(all, last)
			}
		}
	}
	return all, b, true
}

// bitReader reads integers that are packed from the lowest bit up. The caller knows that there are enough.
type bitReader struct {
	b  []byte
	at int // in bits
}

func (r *bitReader) read(width int) uint64 {
	var v uint64
	for have := 0; have < width; {
		n := min(8-r.at%8, width-have)
		v |= uint64(r.b[r.at/8]>>(r.at%8)&(1<<n-1)) << have
		r.at += n
		have += n
	}
	return v
}
