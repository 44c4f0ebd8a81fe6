package mtok

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// deepest bounds nested sequences.
const deepest = 8

// Parse reads the bytes of a file and checks all that the engine relies on without looking.
func Parse(b []byte) (*File, error) {
	r := &reader{s: string(b)}
	m := &File{}
	if !strings.HasPrefix(r.s, magic) {
		if strings.HasPrefix(r.s, "430 ") {
			return nil, fmt.Errorf("tokenizer file of type %.8q: %w", strings.SplitN(r.s[4:], "\n", 2)[0], tensor.ErrUnsupported)
		}
		return nil, fmt.Errorf("does not begin with %q: %w", magic, tensor.ErrCorrupt)
	}
	r.pos = len(magic)
	r.header(m)
	m.Normalizer = r.norm(deepest)
	m.PreTokenizer = r.pre(deepest)
	m.Model = r.model()
	m.Decoder = r.dec(deepest)
	for range r.count(9) {
		m.Added = append(m.Added, Added{r.id(), r.bool(), r.bool(), r.bool(), r.str()})
	}
	r.optional(m)
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// header reads the lines with ids. It wants them as every writer writes them: decimals, single spaces.
func (r *reader) header(m *File) {
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

func (r *reader) norm(depth int) Normalizer {
	n := Normalizer{Tag: r.u8()}
	switch n.Tag {
	case NormNone:
	case NormEmpty:
	case NormPrepend:
		n.Content = r.str()
	case NormReplace:
		n.Pattern, n.Content = r.str(), r.str()
	case NormBert, NormBertTable:
		n.Clean, n.Chinese, n.Accents, n.Lower = r.bool(), r.bool(), r.bool(), r.bool()
		if n.Tag == NormBertTable && n.Accents {
			n.Table = r.table()
		}
	case NormTable:
		n.Table = r.table()
	case NormStrip:
		n.Left, n.Right = r.bool(), r.bool()
	case NormSequence:
		n.Children = children(r, "normalizer", depth, r.norm)
	default:
		r.refuse("normalizer tag %d", n.Tag)
	}
	return n
}

func (r *reader) table() []Substitution {
	count := r.count(6)
	t := make([]Substitution, 0, count)
	for range count {
		s := Substitution{rune(r.id()), r.str()}
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

func (r *reader) pre(depth int) PreTokenizer {
	n := PreTokenizer{Tag: r.u8()}
	switch n.Tag {
	case PreNone, PreBert:
	case PreByteLevel, PreDigits:
		n.Flag = r.bool()
	case PreMetaspace:
		n.Replacement, n.Flag = r.str(), r.bool()
	case PreSplit:
		n.Regex, n.Flag, n.Behavior = r.str(), r.bool(), r.u8()
	case PreSequence:
		n.Children = children(r, "pre-tokenizer", depth, r.pre)
	default:
		r.refuse("pre-tokenizer tag %d", n.Tag)
	}
	return n
}

func (r *reader) dec(depth int) Decoder {
	n := Decoder{Tag: r.u8()}
	switch n.Tag {
	case DecByteLevel, DecByteFallback, DecFuse:
	case DecMetaspace, DecWordPiece:
		n.Content, n.Flag = r.str(), r.bool()
	case DecStrip:
		n.Content, n.Start, n.Stop = r.str(), r.u32(), r.u32()
	case DecReplace:
		n.Pattern, n.Content = r.str(), r.str()
	case DecSequence:
		n.Children = children(r, "decoder", depth, r.dec)
	default:
		r.refuse("decoder tag %d", n.Tag)
	}
	return n
}

// optional reads the optional parts at the end of the file.
func (r *reader) optional(m *File) {
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
func (r *reader) checkProgram(b string) {
	p := &reader{s: b}
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
			p.fail("%d bytes after the post-processor", len(b)-p.pos)
		}
	}
	if r.err == nil {
		r.err = p.err
	}
}

// children reads those of a Sequence, each with read.
func children[T any](r *reader, kind string, depth int, read func(depth int) T) []T {
	if depth == 0 {
		r.refuse("%s nested so deep", kind)
		return nil
	}
	var list []T
	for range r.count(1) {
		list = append(list, read(depth-1))
		if r.err != nil {
			break
		}
	}
	return list
}
