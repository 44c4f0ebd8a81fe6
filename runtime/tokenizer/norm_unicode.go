package tokenizer

import (
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm is one of the normalizers NFC, NFD, NFKC and NFKD.
//
// The library `tokenizers` knows them by tables of Unicode 9. norm.Form, whose tables are younger, serves for text
// that is in the form already and for the properties of single code points. Its own normalization breaks runs of more
// than 30 marks with U+034F and does not compose a Hangul letter with a compatible one, which no other library does.
type unicodeForm struct {
	quick   norm.Form
	changes uint8 // the bits of formTable that this form looks at
	joins   uint8
	compose bool
}

var (
	formNFC  = unicodeForm{norm.NFC, canonicalChanges, canonicalJoins, true}
	formNFD  = unicodeForm{norm.NFD, canonicalChanges, canonicalJoins, false}
	formNFKC = unicodeForm{norm.NFKC, compatibleChanges, compatibleJoins, true}
	formNFKD = unicodeForm{norm.NFKD, compatibleChanges, compatibleJoins, false}
)

// nfc composes s, which must be UTF-8.
func nfc(s string) string { return formNFC.apply(s) }

// apply is normalize for a text alone.
func (f unicodeForm) apply(s string) string { return f.normalize(aligned{s, 0}).text }

func (f unicodeForm) normalize(a aligned) aligned {
	s := a.text
	n := f.quick.QuickSpanString(s)
	if n == len(s) {
		return a
	}
	head := headCount{old: a}
	// The last character of what norm takes for settled may be a letter that composes with the next one.
	_, w := utf8.DecodeLastRuneInString(s[:n])
	t, out := forms(), make([]byte, 0, len(s)+16)
	var seq []combining
	done := n - w // what is in out
	out = append(out, s[:done]...)
	head.keep(s[:done])
	for i := done; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		plain, end := t.bits(r)&f.changes == 0, i+w
		for end < len(s) {
			r, w := utf8.DecodeRuneInString(s[end:])
			if t.bits(r)&f.joins == 0 {
				break
			}
			plain, end = false, end+w
		}
		if !plain {
			out = append(out, s[done:i]...)
			head.keep(s[done:i])
			seq = t.decompose(f, seq[:0], s[i:end])
			if f.compose {
				seq = t.compose(seq)
			}
			for _, c := range seq {
				out = utf8.AppendRune(out, c.r)
				if c.change > 0 {
					head.add(utf8.RuneLen(c.r))
				} else {
					head.put(utf8.RuneLen(c.r), -c.change)
				}
			}
			done = end
		}
		i = end
	}
	head.keep(s[done:])
	return aligned{string(append(out, s[done:]...)), head.finish()}
}

// combining is a code point with its canonical combining class.
type combining struct {
	r   rune
	ccc uint8
	// change is 1 for a code point that came of a decomposition, not as its first, and how many fewer code points than
	// before there are once it composed.
	change int
}

// Bits of a formTable.
const (
	canonicalChanges  uint8 = 1 << iota // has a canonical decomposition
	compatibleChanges                   // has any decomposition
	canonicalJoins                      // its canonical decomposition begins with what combines with something before it
	compatibleJoins                     // its compatible decomposition does
)

// formTable has the properties of code points that norm lacks.
type formTable struct {
	flags [0x30000]uint8 // later code points neither decompose nor combine
	pairs map[[2]rune]rune
}

func (t *formTable) bits(r rune) uint8 {
	if int(r) < len(t.flags) {
		return t.flags[r]
	}
	return 0
}

var forms = sync.OnceValue(func() *formTable {
	t := &formTable{pairs: map[[2]rune]rune{}}
	second := map[rune]bool{} // what composes with something before it
	for r := rune(hangulV); r < hangulV+hangulVs; r++ {
		second[r] = true
	}
	for r := rune(hangulT + 1); r < hangulT+hangulTs; r++ {
		second[r] = true
	}
	for r := range rune(len(t.flags)) {
		d := canonical(r)
		if len(d) < 2 || !norm.NFC.IsNormalString(string(r)) {
			continue
		}
		last := d[len(d)-1]
		if before := []rune(norm.NFC.String(string(d[:len(d)-1]))); len(before) == 1 {
			t.pairs[[2]rune{before[0], last}] = r
			second[last] = true
		}
	}
	joins := func(d rune) bool { return second[d] || class(d) != 0 }
	for r := range rune(len(t.flags)) {
		c, k := canonical(r), compatible(r)
		isSyllable := r >= hangulS && r < hangulS+hangulSs
		if c[0] != r || isSyllable {
			t.flags[r] |= canonicalChanges
		}
		if k[0] != r || isSyllable {
			t.flags[r] |= compatibleChanges
		}
		if joins(c[0]) {
			t.flags[r] |= canonicalJoins
		}
		if joins(k[0]) {
			t.flags[r] |= compatibleJoins
		}
	}
	return t
})

// canonical is the full canonical decomposition of a code point. Hangul syllables are left whole.
func canonical(r rune) []rune { return decomposition(norm.NFD, r) }

// compatible is the full decomposition of a code point. Hangul syllables are left whole.
func compatible(r rune) []rune { return decomposition(norm.NFKD, r) }

func decomposition(f norm.Form, r rune) []rune {
	if r >= utf8.RuneSelf && unicode.Is(unicode9, r) {
		if d := f.PropertiesString(string(r)).Decomposition(); d != nil {
			return []rune(string(d))
		}
	}
	return []rune{r}
}

// class is the canonical combining class of a code point that does not decompose.
func class(r rune) uint8 {
	if r < utf8.RuneSelf || !unicode.Is(unicode9, r) {
		return 0
	}
	return norm.NFD.PropertiesString(string(r)).CCC()
}

// Hangul syllables are arithmetic (The Unicode Standard, 3.12).
const (
	hangulL, hangulV, hangulT, hangulS     = 0x1100, 0x1161, 0x11A7, 0xAC00
	hangulLs, hangulVs, hangulTs, hangulSs = 19, 21, 28, 19 * 21 * 28
)

// decompose appends the decomposition of s to seq, marks in canonical order.
func (t *formTable) decompose(f unicodeForm, seq []combining, s string) []combining {
	for _, r := range s {
		switch bits := t.bits(r); {
		case bits&f.changes == 0:
			c := combining{r: r}
			if bits != 0 {
				c.ccc = class(r)
			}
			seq = append(seq, c)
		case r >= hangulS && r < hangulS+hangulSs:
			i := r - hangulS
			seq = append(seq, combining{r: hangulL + i/hangulTs/hangulVs}, combining{r: hangulV + i/hangulTs%hangulVs, change: 1})
			if i%hangulTs != 0 {
				seq = append(seq, combining{r: hangulT + i%hangulTs, change: 1})
			}
		default:
			form := norm.NFD
			if f.changes == compatibleChanges {
				form = norm.NFKD
			}
			for i, d := range decomposition(form, r) {
				seq = append(seq, combining{d, class(d), min(i, 1)})
			}
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
	return seq
}

// compose composes a sequence in canonical order, in place.
func (t *formTable) compose(seq []combining) []combining {
	kept, starter, last := seq[:0], -1, -1
	for _, c := range seq {
		// A mark after one of its own or a higher class does not reach the starter.
		if starter >= 0 && last < int(c.ccc) {
			if r, ok := t.pair(kept[starter].r, c.r); ok {
				kept[starter].r = r
				kept[starter].change += c.change - 1
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

// pair gives the one code point that stands for a followed by b, if there is one.
func (t *formTable) pair(a, b rune) (rune, bool) {
	switch {
	case a >= hangulL && a < hangulL+hangulLs && b >= hangulV && b < hangulV+hangulVs:
		return hangulS + ((a-hangulL)*hangulVs+b-hangulV)*hangulTs, true
	case a >= hangulS && a < hangulS+hangulSs && (a-hangulS)%hangulTs == 0 && b > hangulT && b < hangulT+hangulTs:
		return a + b - hangulT, true
	}
	r, ok := t.pairs[[2]rune{a, b}]
	return r, ok
}
