package tokenizer

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// mtok is a tokenizer.mtok, field by field in the order of the file: parsing and marshalling give the same
// bytes.
type mtok struct {
	Special, Stop, Prefix []int32
	Normalizer            normNode
	PreTokenizer          preNode
	ByteFallback          bool // ignored by the engine
	ByteLevel             bool // the model maps bytes to stand-ins
	Vocab                 []vocabEntry
	Merges                []mergeEntry
	Decoder               decNode
	Added                 []mtokAdded
	// Sections counts the optional parts that follow, from 0 to 5.
	Sections    int
	Template    string
	EOS         string
	Flags       uint8
	BOS         string
	PostProcess string // the program's bytes, count included
}

type vocabEntry struct {
	Token string
	ID    int32
}

type mergeEntry struct{ Left, Right, Rank int32 }

type mtokAdded struct {
	ID                      int32
	Special, LStrip, RStrip bool
	Content                 string
}

// Tags of nodes. Those that are missing here are refused.
const (
	normNone, normReplace, normSequence, normTable, normStrip = 0, 3, 4, 6, 8
	preNone, preByteLevel, preDigits, preSplit, preSequence   = 0, 1, 2, 4, 6
	decByteLevel, decFuse, decReplace, decSequence            = 0, 4, 5, 7
	modelBPE                                                  = 0
	splitIsolated, splitRemoved, splitMergedWithPrevious      = 0, 1, 2
)

// normNode is a normalizer; which fields count depends on the tag.
type normNode struct {
	Tag              uint8
	Pattern, Content string         // replace
	Table            []substitution // table
	Left, Right      bool           // strip
	Children         []normNode     // sequence
}

type substitution struct {
	Char rune
	Text string
}

// preNode is a pre-tokenizer.
type preNode struct {
	Tag      uint8
	Flag     bool // byte level: use the regex; digits: one by one; split: invert
	Regex    string
	Behavior uint8
	Children []preNode
}

// decNode is a decoder.
type decNode struct {
	Tag              uint8
	Pattern, Content string
	Children         []decNode
}

const mtokMagic = "430 4\n"

// mtokWriter collects bytes; a text that is too long for its length field is remembered as an error.
type mtokWriter struct {
	b   []byte
	err error
}

func (w *mtokWriter) u8(v uint8)   { w.b = append(w.b, v) }
func (w *mtokWriter) u16(v uint16) { w.b = binary.LittleEndian.AppendUint16(w.b, v) }
func (w *mtokWriter) u32(v int)    { w.b = binary.LittleEndian.AppendUint32(w.b, uint32(v)) }
func (w *mtokWriter) bool(v bool) {
	if v {
		w.u8(1)
	} else {
		w.u8(0)
	}
}

func (w *mtokWriter) str(s string) {
	if len(s) > math.MaxUint16 && w.err == nil {
		w.err = fmt.Errorf("text of %d bytes, %.20q...: %w", len(s), s, tensor.ErrUnsupported)
	}
	w.u16(uint16(len(s)))
	w.b = append(w.b, s...)
}

func (m *mtok) marshal() ([]byte, error) {
	w := &mtokWriter{b: []byte(mtokMagic)}
	w.b = fmt.Appendf(w.b, "%d %d %d\n", len(m.Special), len(m.Stop), len(m.Prefix))
	var ids []string
	for _, list := range [][]int32{m.Special, m.Stop, m.Prefix} {
		for _, id := range list {
			ids = append(ids, strconv.Itoa(int(id)))
		}
	}
	w.b = append(append(w.b, strings.Join(ids, " ")...), '\n')
	w.norm(m.Normalizer)
	w.pre(m.PreTokenizer)
	w.u8(modelBPE)
	w.u32(len(m.Vocab))
	w.bool(m.ByteFallback)
	w.bool(m.ByteLevel)
	w.u32(len(m.Merges))
	for _, v := range m.Vocab {
		w.str(v.Token)
		w.u32(int(v.ID))
	}
	for _, e := range m.Merges {
		w.u32(int(e.Left))
		w.u32(int(e.Right))
		w.u32(int(e.Rank))
	}
	w.dec(m.Decoder)
	w.u32(len(m.Added))
	for _, a := range m.Added {
		w.u32(int(a.ID))
		w.bool(a.Special)
		w.bool(a.LStrip)
		w.bool(a.RStrip)
		w.str(a.Content)
	}
	if m.Sections > 0 {
		w.u32(len(m.Template))
		w.b = append(w.b, m.Template...)
	}
	if m.Sections > 1 {
		w.str(m.EOS)
	}
	if m.Sections > 2 {
		w.u8(m.Flags)
	}
	if m.Sections > 3 {
		w.str(m.BOS)
	}
	if m.Sections > 4 {
		w.b = append(w.b, m.PostProcess...)
	}
	return w.b, w.err
}

func (w *mtokWriter) norm(n normNode) {
	w.u8(n.Tag)
	switch n.Tag {
	case normReplace:
		w.str(n.Pattern)
		w.str(n.Content)
	case normTable:
		w.u32(len(n.Table))
		for _, s := range n.Table {
			w.u32(int(s.Char))
			w.str(s.Text)
		}
	case normStrip:
		w.bool(n.Left)
		w.bool(n.Right)
	case normSequence:
		w.u32(len(n.Children))
		for _, c := range n.Children {
			w.norm(c)
		}
	}
}

func (w *mtokWriter) pre(n preNode) {
	w.u8(n.Tag)
	switch n.Tag {
	case preByteLevel, preDigits:
		w.bool(n.Flag)
	case preSplit:
		w.str(n.Regex)
		w.bool(n.Flag)
		w.u8(n.Behavior)
	case preSequence:
		w.u32(len(n.Children))
		for _, c := range n.Children {
			w.pre(c)
		}
	}
}

func (w *mtokWriter) dec(n decNode) {
	w.u8(n.Tag)
	switch n.Tag {
	case decReplace:
		w.str(n.Pattern)
		w.str(n.Content)
	case decSequence:
		w.u32(len(n.Children))
		for _, c := range n.Children {
			w.dec(c)
		}
	}
}
