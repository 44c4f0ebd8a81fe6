package tokenizer

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/merge"
)

// mtokReader reads from s and remembers the first error; from then on it returns zeros.
type mtokReader struct {
	s   string
	pos int
	err error
}

func (r *mtokReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("byte %d: %s: %w", r.pos, fmt.Sprintf(format, args...), tensor.ErrCorrupt)
	}
}

// refuse is fail for what is known but not read here.
func (r *mtokReader) refuse(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("byte %d: %s: %w", r.pos, fmt.Sprintf(format, args...), tensor.ErrUnsupported)
	}
}

func (r *mtokReader) take(n int) string {
	if r.err == nil && n > len(r.s)-r.pos {
		r.fail("%d bytes wanted, %d left", n, len(r.s)-r.pos)
	}
	if r.err != nil {
		return ""
	}
	r.pos += n
	return r.s[r.pos-n : r.pos]
}

func (r *mtokReader) u8() uint8 {
	if b := r.take(1); r.err == nil {
		return b[0]
	}
	return 0
}

func (r *mtokReader) u16() uint16 {
	if b := r.take(2); r.err == nil {
		return binary.LittleEndian.Uint16([]byte(b))
	}
	return 0
}

func (r *mtokReader) u32() uint32 {
	if b := r.take(4); r.err == nil {
		return binary.LittleEndian.Uint32([]byte(b))
	}
	return 0
}

func (r *mtokReader) f64() float64 {
	if b := r.take(8); r.err == nil {
		return math.Float64frombits(binary.LittleEndian.Uint64([]byte(b)))
	}
	return 0
}

func (r *mtokReader) bool() bool {
	v := r.u8()
	if v > 1 {
		r.fail("%d is neither 0 nor 1", v)
	}
	return v == 1
}

func (r *mtokReader) str() string { return r.take(int(r.u16())) }

// count reads the number of things that take at least size bytes each, so that the file bounds it.
func (r *mtokReader) count(size int) int {
	n := r.u32()
	if int64(n)*int64(size) > int64(len(r.s)-r.pos) {
		r.fail("%d entries in %d bytes", n, len(r.s)-r.pos)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// id reads an id or a rank.
func (r *mtokReader) id() int32 {
	v := r.u32()
	if v > math.MaxInt32 {
		r.fail("%d is too large", v)
	}
	return int32(v & math.MaxInt32)
}

func (r *mtokReader) line() string {
	n := strings.IndexByte(r.s[r.pos:], '\n')
	if n < 0 {
		r.fail("no end of line")
		return ""
	}
	return strings.TrimSuffix(r.take(n+1), "\n")
}

// deepest is how deep a sequence may lie inside another.
const deepest = 8

// parseMTOK reads the bytes of a file and checks all that the engine relies on without looking.
func parseMTOK(b []byte) (*mtok, error) {
	r := &mtokReader{s: string(b)}
	m := &mtok{}
	if !strings.HasPrefix(r.s, mtokMagic) {
		if strings.HasPrefix(r.s, "430 ") {
			return nil, fmt.Errorf("tokenizer file of type %.8q: %w", strings.SplitN(r.s[4:], "\n", 2)[0], tensor.ErrUnsupported)
		}
		return nil, fmt.Errorf("does not begin with %q: %w", mtokMagic, tensor.ErrCorrupt)
	}
	r.pos = len(mtokMagic)
	r.header(m)
	m.Normalizer = r.norm(deepest)
	m.PreTokenizer = r.pre(deepest)
	m.Model = r.model()
	m.Decoder = r.dec(deepest)
	for range r.count(9) {
		m.Added = append(m.Added, mtokAdded{r.id(), r.bool(), r.bool(), r.bool(), r.str()})
	}
	r.optional(m)
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// header reads the lines with ids. It wants them as every writer writes them: decimals, single spaces.
func (r *mtokReader) header(m *mtok) {
	counts := r.ids(r.line())
	if r.err == nil && len(counts) != 3 {
		r.fail("%d counts, not three", len(counts))
	}
	ids := r.ids(r.line())
	if r.err != nil {
		return
	}
	for i, list := range []*[]int32{&m.Special, &m.Stop, &m.Prefix} {
		n := int(counts[i])
		if n > len(ids) {
			r.fail("%d ids are missing", n-len(ids))
			return
		}
		if n > 0 {
			*list = ids[:n:n]
		}
		ids = ids[n:]
	}
	if len(ids) > 0 {
		r.fail("%d ids too many", len(ids))
	}
}

func (r *mtokReader) ids(line string) []int32 {
	if line == "" {
		return nil
	}
	var ids []int32
	for f := range strings.SplitSeq(line, " ") {
		id, err := strconv.ParseUint(f, 10, 31)
		if err != nil || strconv.FormatUint(id, 10) != f {
			r.fail("%.20q is no id", f)
			return nil
		}
		ids = append(ids, int32(id))
	}
	return ids
}

func (r *mtokReader) norm(depth int) normNode {
	n := normNode{Tag: r.u8()}
	switch n.Tag {
	case normNone:
	case normEmpty:
	case normPrepend:
		n.Content = r.str()
	case normReplace:
		n.Pattern, n.Content = r.str(), r.str()
	case normBert, normBertTable:
		n.Clean, n.Chinese, n.Accents, n.Lower = r.bool(), r.bool(), r.bool(), r.bool()
		if n.Tag == normBertTable && n.Accents {
			n.Table = r.table()
		}
	case normTable:
		n.Table = r.table()
	case normStrip:
		n.Left, n.Right = r.bool(), r.bool()
	case normSequence:
		if depth == 0 {
			r.refuse("normalizer nested so deep")
			return n
		}
		for range r.count(1) {
			n.Children = append(n.Children, r.norm(depth-1))
			if r.err != nil {
				return n
			}
		}
	default:
		r.refuse("normalizer tag %d", n.Tag)
	}
	return n
}

func (r *mtokReader) table() []substitution {
	count := r.count(6)
	t := make([]substitution, 0, count)
	for range count {
		s := substitution{rune(r.id()), r.str()}
		if k := len(t); k > 0 && t[k-1].Char >= s.Char {
			r.fail("code points of a table are not sorted")
		}
		if s.Char > utf8.MaxRune {
			r.fail("code point %d", s.Char)
		}
		if r.err != nil {
			return nil
		}
		t = append(t, s)
	}
	return t
}

func (r *mtokReader) pre(depth int) preNode {
	n := preNode{Tag: r.u8()}
	switch n.Tag {
	case preNone, preBert:
	case preByteLevel, preDigits:
		n.Flag = r.bool()
	case preMetaspace:
		n.Replacement, n.Flag = r.str(), r.bool()
	case preSplit:
		n.Regex, n.Flag, n.Behavior = r.str(), r.bool(), r.u8()
	case preSequence:
		if depth == 0 {
			r.refuse("pre-tokenizer nested so deep")
			return n
		}
		for range r.count(1) {
			n.Children = append(n.Children, r.pre(depth-1))
			if r.err != nil {
				return n
			}
		}
	default:
		r.refuse("pre-tokenizer tag %d", n.Tag)
	}
	return n
}

func (r *mtokReader) dec(depth int) decNode {
	n := decNode{Tag: r.u8()}
	switch n.Tag {
	case decByteLevel, decByteFallback, decFuse:
	case decMetaspace, decWordPiece:
		n.Content, n.Flag = r.str(), r.bool()
	case decStrip:
		n.Content, n.Start, n.Stop = r.str(), r.u32(), r.u32()
	case decReplace:
		n.Pattern, n.Content = r.str(), r.str()
	case decSequence:
		if depth == 0 {
			r.refuse("decoder nested so deep")
			return n
		}
		for range r.count(1) {
			n.Children = append(n.Children, r.dec(depth-1))
			if r.err != nil {
				return n
			}
		}
	default:
		r.refuse("decoder tag %d", n.Tag)
	}
	return n
}

// model checks everything that the engine relies on without looking: order, ids in range, ids used once.
func (r *mtokReader) model() modelNode {
	n := modelNode{Tag: r.u8()}
	size := r.u32()
	each := int64(6)
	var merges uint32
	switch n.Tag {
	case modelBPE:
		n.ByteFallback, n.ByteLevel = r.bool(), r.bool()
		merges = r.u32()
	case modelWordPiece:
		n.Unknown, n.Prefix = r.str(), r.str()
		n.MaxBytes = int(r.u32())
	case modelUnigram:
		n.UnknownID, n.ByteFallback = r.id(), r.bool()
		if r.err == nil && int64(n.UnknownID) >= int64(size) {
			r.fail("id %d of the unknown token of %d tokens", n.UnknownID, size)
		}
		each = 14
	default:
		r.refuse("model of type %d", n.Tag)
	}
	left := int64(len(r.s) - r.pos)
	if need := int64(size)*each + int64(merges)*12; need > left {
		r.fail("%d tokens and %d merges in %d bytes", size, merges, left)
	}
	if r.err != nil {
		return n
	}
	n.Vocab = make([]vocabEntry, 0, size)
	used := make([]bool, size)
	for i := range int(size) {
		e := vocabEntry{Token: r.str(), ID: r.id()}
		if n.Tag == modelUnigram {
			e.Score = r.f64()
		}
		switch {
		case r.err != nil:
			return n
		case int64(e.ID) >= int64(size):
			r.fail("token %q has id %d of %d", e.Token, e.ID, size)
			return n
		case used[e.ID]:
			r.fail("id %d has two tokens", e.ID)
			return n
		// Of equal tokens the engine finds the first.
		case i > 0 && n.Vocab[i-1].Token > e.Token:
			r.fail("token %q is not in order", e.Token)
			return n
		case math.IsNaN(e.Score) || math.Abs(e.Score) > maxScore:
			r.refuse("token %q has the score %g", e.Token, e.Score)
			return n
		}
		used[e.ID] = true
		n.Vocab = append(n.Vocab, e)
	}
	n.Merges = r.merges(int(merges), int(size))
	return n
}

// maxScore keeps sums of scores far from the numbers that the engine takes for minus infinity.
const maxScore = 1e6

func (r *mtokReader) merges(count, size int) []mergeEntry {
	if count == 0 {
		return nil
	}
	all := make([]mergeEntry, 0, count)
	last := merge.Pair(0)
	for i := range count {
		e := mergeEntry{r.id(), r.id(), r.id()}
		p := merge.PairOf(e.Left, e.Right)
		switch {
		case r.err != nil:
			return nil
		case int(max(e.Left, e.Right)) >= size || e.Rank >= merge.MaxMerges:
			r.fail("merge of %d and %d with rank %d", e.Left, e.Right, e.Rank)
			return nil
		case i > 0 && last >= p:
			r.fail("merge of %d and %d is not in order", e.Left, e.Right)
			return nil
		}
		last = p
		all = append(all, e)
	}
	return all
}

// optional reads what may be missing at the end of the file.
func (r *mtokReader) optional(m *mtok) {
	sections := []func(){
		func() { m.Template = r.take(r.count(1)) },
		func() { m.EOS = r.str() },
		func() { m.Flags = r.u8() },
		func() { m.BOS = r.str() },
		func() { m.PostProcess = r.take(len(r.s) - r.pos); r.checkProgram(m.PostProcess) },
	}
	for _, read := range sections {
		if r.err != nil || r.pos == len(r.s) {
			return
		}
		read()
		m.Sections++
	}
}

// checkProgram walks the post-processor as newer engines do. Engines up to 3.6.1 do not read it. One byte may
// follow it: it keeps a program of 4n bytes from being taken for the older form, a list of n ids.
func (r *mtokReader) checkProgram(b string) {
	p := &mtokReader{s: b}
	n := int(p.u16())
	if p.err == nil && len(b)-2 != 4*n {
		for range n {
			switch op := p.u8(); op {
			case 0:
			case 1:
				p.id()
			default:
				p.fail("post-processor step %d", op)
			}
			if p.err != nil {
				break
			}
		}
		if p.err == nil && len(b)-p.pos > 1 {
			p.fail("%d bytes behind the post-processor", len(b)-p.pos)
		}
	}
	if r.err == nil {
		r.err = p.err
	}
}

// sortedVocab puts entries into the order of the file.
func sortedVocab(v []vocabEntry) {
	slices.SortFunc(v, func(a, b vocabEntry) int {
		if c := strings.Compare(a.Token, b.Token); c != 0 {
			return c
		}
		return int(a.ID) - int(b.ID)
	})
}
