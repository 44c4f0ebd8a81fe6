//go:build (amd64 || arm64) && !purego

package kernel

import (
	"encoding/binary"
	"math"
)

// newPanels makes panels, to be filled by packPanels, unless the generic code multiplies.
func (m *Int8Matrix) newPanels(n int, option DynOption) bool {
	if layoutOfInt8().group == 0 {
		return false
	}
	p := &int8Panels{groups: (m.block + 7) / 8}
	p.record = (p.groups*2 + 2) * panelBytes
	if m.nibbles {
		p.record = (p.groups + 2) * panelBytes
	}
	p.data = hugeBytes(n * m.blocks * p.record)
	if option == DynBlock {
		p.sums = hugeFloats(n * m.blocks * int8PanelRows)
	}
	m.panels = p
	return true
}

// packPanels converts rows lo to hi-1, lo being the first of a panel.
func (m *Int8Matrix) packPanels(w *WeightCodes, lo, hi int) {
	p := m.panels
	padded := make([]uint8, (m.cols+7)&^7)
	for r := lo; r < hi; r++ {
		panel, lane := r/int8PanelRows, r%int8PanelRows
		row, stored := padded, w.Nibbles != nil && m.cols%8 == 0
		switch {
		case stored:
			row = w.Nibbles[r*m.cols/2:][:m.cols/2]
		case w.Codes != nil && m.cols%8 == 0:
			row = w.Codes[r*m.cols:][:m.cols]
		default:
			w.row(padded, r)
		}
		scale, zero := m.scales(w, r)
		size, tail := len(row)/m.blocks, float32(0)
		for b := range m.blocks {
			record := p.data[(panel*m.blocks+b)*p.record:][:p.record]
			codes := row[b*size:][:size]
			var n int32
			switch {
			case stored:
				n = packStored(record[4*lane:], codes)
			case m.nibbles:
				n = packNibbles(record[4*lane:], codes)
			default:
				n = packBytes(record[4*lane:], codes, w.half()) - int32(w.half()*m.block)
			}
			z := float32(0)
			if zero != nil {
				z = zero[b]
			}
			term := m.term(scale[b], z, n)
			terms := record[p.record-2*panelBytes+4*lane:]
			binary.LittleEndian.PutUint32(terms, math.Float32bits(term.scale))
			binary.LittleEndian.PutUint32(terms[panelBytes:], math.Float32bits(term.offset))
			if p.sums != nil {
				p.sums[(panel*m.blocks+b)*int8PanelRows+lane] = term.sum
			}
			tail += term.sum
		}
		m.tails[r] = tail
	}
}

// packNibbles packs and spreads codes of 4 bits and returns their sum.
func packNibbles(to []byte, codes []uint8) int32 {
	var n uint64
	for g := 0; 8*g < len(codes); g++ {
		v := binary.LittleEndian.Uint64(codes[8*g:])
		binary.LittleEndian.PutUint32(to[panelBytes*g:], evenBytes(v)<<4|evenBytes(v>>8))
		n += sumBytes(v)
	}
	return int32(n)
}

// evenBytes is bytes 0, 2, 4 and 6 of v.
func evenBytes(v uint64) uint32 {
	v &= 0x00ff00ff00ff00ff
	v = (v | v>>8) & 0x0000ffff0000ffff
	return uint32(v | v>>16)
}

// sumBytes adds up the bytes of v.
func sumBytes(v uint64) uint64 {
	return (v&0x00ff00ff00ff00ff + v>>8&0x00ff00ff00ff00ff) * 0x0001000100010001 >> 48
}
