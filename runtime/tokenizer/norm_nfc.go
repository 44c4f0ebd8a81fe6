package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The library `tokenizers` composes by tables of Unicode 9. Marks that are younger neither move nor
// compose there, so nothing may be moved or composed across them; the last three code points form
// a pair that is younger too.
var nfcBarriers = table(
	0x7FD, 0x7FD, 0x898, 0x89F, 0x8CA, 0x8D3, 0x9FE, 0x9FE, 0xC3C, 0xC3C, 0xD3B, 0xD3C, 0xEBA, 0xEBA, 0x1715, 0x1715,
	0x1ABF, 0x1ACE, 0x1DF6, 0x1DFA, 0xA82C, 0xA82C, 0x10D24, 0x10D27, 0x10EAB, 0x10EAC, 0x10EFD, 0x10EFF,
	0x10F46, 0x10F50, 0x10F82, 0x10F85, 0x11070, 0x11070, 0x1133B, 0x1133B, 0x1145E, 0x1145E, 0x11839, 0x1183A,
	0x11930, 0x11930, 0x11935, 0x11935, 0x11938, 0x11938, 0x1193D, 0x1193E, 0x11943, 0x11943, 0x119E0, 0x119E0,
	0x11A34, 0x11A34, 0x11A47, 0x11A47, 0x11A99, 0x11A99, 0x11D42, 0x11D42, 0x11D44, 0x11D45, 0x11D97, 0x11D97,
	0x11F41, 0x11F42, 0x16FF0, 0x16FF1, 0x1E08F, 0x1E08F, 0x1E130, 0x1E136, 0x1E2AE, 0x1E2AE, 0x1E2EC, 0x1E2EF,
	0x1E4EC, 0x1E4EF)

// nfc composes s, which must be UTF-8. norm.NFC itself serves only for text that is composed already and
// for single pairs: it breaks runs of more than 30 marks with U+034F, which no other library does.
func nfc(s string) string {
	n := norm.NFC.QuickSpanString(s)
	if n == len(s) {
		return s
	}
	out := append(make([]byte, 0, len(s)+16), s[:n]...)
	for n < len(s) {
		end := nfcSegment(s[n:])
		out = appendComposed(out, s[n:n+end])
		n += end
		quick := norm.NFC.QuickSpanString(s[n:])
		out = append(out, s[n:n+quick]...)
		n += quick
	}
	return string(out)
}

// nfcSegment is the length of the first part of s that can be composed on its own.
func nfcSegment(s string) int {
	r, n := utf8.DecodeRuneInString(s)
	if unicode.Is(nfcBarriers, r) {
		return n
	}
	for n < len(s) {
		r, w := utf8.DecodeRuneInString(s[n:])
		if norm.NFC.PropertiesString(s[n:]).BoundaryBefore() || unicode.Is(nfcBarriers, r) {
			break
		}
		n += w
	}
	return n
}

type combining struct {
	r   rune
	ccc uint8
}

// appendComposed decomposes a segment, sorts its marks and composes it again.
func appendComposed(out []byte, segment string) []byte {
	if r, n := utf8.DecodeRuneInString(segment); n == len(segment) && unicode.Is(nfcBarriers, r) {
		return append(out, segment...)
	}
	var seq []combining
	var buf []byte
	for _, r := range segment {
		buf = norm.NFD.AppendString(buf[:0], string(r))
		for _, d := range string(buf) {
			seq = append(seq, combining{d, norm.NFD.PropertiesString(string(d)).CCC()})
		}
	}
	for i := 0; i < len(seq); {
		j := i
		for j < len(seq) && seq[j].ccc != 0 {
			j++
		}
		slices.SortStableFunc(seq[i:j], func(a, b combining) int { return int(a.ccc) - int(b.ccc) })
		i = j + 1
	}
	kept, starter, last := seq[:0], -1, -1
	for _, c := range seq {
		// A mark is out of the starter's reach behind one of its own or a higher class.
		if starter >= 0 && last < int(c.ccc) {
			if r, ok := compose(kept[starter].r, c.r); ok {
				kept[starter].r = r
				continue
			}
		}
		if c.ccc == 0 {
			starter, last = len(kept), -1
		} else {
			last = int(c.ccc)
		}
		kept = append(kept, c)
	}
	for _, c := range kept {
		out = utf8.AppendRune(out, c.r)
	}
	return out
}

// compose gives the one code point that stands for a followed by b, if there is one.
func compose(a, b rune) (rune, bool) {
	var buf [2 * utf8.UTFMax]byte
	pair := utf8.AppendRune(utf8.AppendRune(buf[:0], a), b)
	one := norm.NFC.Bytes(pair)
	r, n := utf8.DecodeRune(one)
	return r, n == len(one)
}
