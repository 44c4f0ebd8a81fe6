package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm is one of the normalizers NFC, NFD, NFKC and NFKD.
//
// The library `tokenizers` knows them by tables of Unicode 9. norm.Form, whose tables are younger, serves only for
// text that is in the form already, for single code points and for single pairs: it breaks runs of more than 30
// marks with U+034F, which no other library does.
type unicodeForm struct {
	quick     norm.Form // what text must be to be left alone
	decompose norm.Form // NFD or NFKD
	compose   bool
}

var (
	formNFC  = unicodeForm{norm.NFC, norm.NFD, true}
	formNFD  = unicodeForm{norm.NFD, norm.NFD, false}
	formNFKC = unicodeForm{norm.NFKC, norm.NFKD, true}
	formNFKD = unicodeForm{norm.NFKD, norm.NFKD, false}
)

// youngMarks are the code points that combine in the tables of norm and not in those of Unicode 9, where they neither
// move nor compose, so that nothing may be moved or composed across them. The last three form a pair that is younger
// too.
var youngMarks = table(
	0x7FD, 0x7FD, 0x898, 0x89F, 0x8CA, 0x8D3, 0x9FE, 0x9FE, 0xC3C, 0xC3C, 0xD3B, 0xD3C, 0xEBA, 0xEBA, 0x1715, 0x1715,
	0x1ABF, 0x1ACE, 0x1DF6, 0x1DFA, 0xA82C, 0xA82C, 0x10D24, 0x10D27, 0x10EAB, 0x10EAC, 0x10EFD, 0x10EFF,
	0x10F46, 0x10F50, 0x10F82, 0x10F85, 0x11070, 0x11070, 0x1133B, 0x1133B, 0x1145E, 0x1145E, 0x11839, 0x1183A,
	0x11930, 0x11930, 0x11935, 0x11935, 0x11938, 0x11938, 0x1193D, 0x1193E, 0x11943, 0x11943, 0x119E0, 0x119E0,
	0x11A34, 0x11A34, 0x11A47, 0x11A47, 0x11A99, 0x11A99, 0x11D42, 0x11D42, 0x11D44, 0x11D45, 0x11D97, 0x11D97,
	0x11F41, 0x11F42, 0x16FF0, 0x16FF1, 0x1E08F, 0x1E08F, 0x1E130, 0x1E136, 0x1E2AE, 0x1E2AE, 0x1E2EC, 0x1E2EF,
	0x1E4EC, 0x1E4EF)

// youngCompatible are the code points that norm decomposes and Unicode 9 does not, other than youngMarks.
var youngCompatible = table(
	0x32FF, 0x32FF, 0xA7F2, 0xA7F4, 0xAB69, 0xAB69, 0x10781, 0x10785, 0x10787, 0x107B0, 0x107B2, 0x107BA,
	0x1E030, 0x1E06D, 0x1F16C, 0x1F16C, 0x1FBF0, 0x1FBF9)

// nfc composes s, which must be UTF-8.
func nfc(s string) string { return formNFC.apply(s) }

func (f unicodeForm) normalize(p piece) piece {
	p.text = f.apply(p.text)
	return p
}

func (f unicodeForm) apply(s string) string {
	n := f.quick.QuickSpanString(s)
	if n == len(s) {
		return s
	}
	out := append(make([]byte, 0, len(s)+16), s[:n]...)
	var w formWriter
	for n < len(s) {
		end := f.segment(s[n:])
		out = w.append(f, out, s[n:n+end])
		n += end
		quick := f.quick.QuickSpanString(s[n:])
		out = append(out, s[n:n+quick]...)
		n += quick
	}
	return string(out)
}

// segment is the length of the first part of s whose form does not depend on the rest.
func (f unicodeForm) segment(s string) int {
	r, n := utf8.DecodeRuneInString(s)
	if unicode.Is(youngMarks, r) {
		return n
	}
	for n < len(s) {
		r, w := utf8.DecodeRuneInString(s[n:])
		if f.quick.PropertiesString(s[n:]).BoundaryBefore() || unicode.Is(youngMarks, r) {
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

// formWriter holds the memory that segments share.
type formWriter struct {
	seq []combining
	buf []byte
}

// append decomposes a segment, sorts its marks and composes it again if the form does so.
func (w *formWriter) append(f unicodeForm, out []byte, segment string) []byte {
	if r, n := utf8.DecodeRuneInString(segment); n == len(segment) && unicode.Is(youngMarks, r) {
		return append(out, segment...)
	}
	seq := w.seq[:0]
	for _, r := range segment {
		if unicode.Is(youngCompatible, r) {
			seq = append(seq, combining{r, 0})
			continue
		}
		var char [utf8.UTFMax]byte
		w.buf = f.decompose.Append(w.buf[:0], utf8.AppendRune(char[:0], r)...)
		for i := 0; i < len(w.buf); {
			d, n := utf8.DecodeRune(w.buf[i:])
			seq = append(seq, combining{d, norm.NFD.Properties(w.buf[i:]).CCC()})
			i += n
		}
	}
	w.seq = seq
	for i := 0; i < len(seq); {
		j := i
		for j < len(seq) && seq[j].ccc != 0 {
			j++
		}
		slices.SortStableFunc(seq[i:j], func(a, b combining) int { return int(a.ccc) - int(b.ccc) })
		i = j + 1
	}
	if f.compose {
		seq = composeMarks(seq)
	}
	for _, c := range seq {
		out = utf8.AppendRune(out, c.r)
	}
	return out
}

// composeMarks composes a sequence in canonical order, in place.
func composeMarks(seq []combining) []combining {
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
	return kept
}

// compose gives the one code point that stands for a followed by b, if there is one.
func compose(a, b rune) (rune, bool) {
	var buf [2 * utf8.UTFMax]byte
	pair := utf8.AppendRune(utf8.AppendRune(buf[:0], a), b)
	one := norm.NFC.Bytes(pair)
	r, n := utf8.DecodeRune(one)
	return r, n == len(one)
}
