package tokenizer

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

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

// marshal gives the bytes of a file. A text that is too long for its length field is tensor.ErrUnsupported.
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
	w.model(m.Model)
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
	case normPrepend:
		w.str(n.Content)
	case normReplace:
		w.str(n.Pattern)
		w.str(n.Content)
	case normBert, normBertTable:
		w.bool(n.Clean)
		w.bool(n.Chinese)
		w.bool(n.Accents)
		w.bool(n.Lower)
		if n.Tag == normBertTable && n.Accents {
			w.table(n.Table)
		}
	case normTable:
		w.table(n.Table)
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

func (w *mtokWriter) table(t []substitution) {
	w.u32(len(t))
	for _, s := range t {
		w.u32(int(s.Char))
		w.str(s.Text)
	}
}

func (w *mtokWriter) pre(n preNode) {
	w.u8(n.Tag)
	switch n.Tag {
	case preByteLevel, preDigits:
		w.bool(n.Flag)
	case preMetaspace:
		w.str(n.Replacement)
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

func (w *mtokWriter) model(n modelNode) {
	w.u8(n.Tag)
	w.u32(len(n.Vocab))
	switch n.Tag {
	case modelBPE:
		w.bool(n.ByteFallback)
		w.bool(n.ByteLevel)
		w.u32(len(n.Merges))
	case modelWordPiece:
		w.str(n.Unknown)
		w.str(n.Prefix)
		w.u32(n.MaxBytes)
	case modelUnigram:
		w.u32(int(n.UnknownID))
		w.bool(n.ByteFallback)
	}
	for _, v := range n.Vocab {
		w.str(v.Token)
		w.u32(int(v.ID))
		if n.Tag == modelUnigram {
			w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(v.Score))
		}
	}
	if n.Tag != modelBPE {
		return
	}
	for _, e := range n.Merges {
		w.u32(int(e.Left))
		w.u32(int(e.Right))
		w.u32(int(e.Rank))
	}
}

func (w *mtokWriter) dec(n decNode) {
	w.u8(n.Tag)
	switch n.Tag {
	case decMetaspace, decWordPiece:
		w.str(n.Content)
		w.bool(n.Flag)
	case decReplace:
		w.str(n.Pattern)
		w.str(n.Content)
	case decStrip:
		w.str(n.Content)
		w.u32(int(n.Start))
		w.u32(int(n.Stop))
	case decSequence:
		w.u32(len(n.Children))
		for _, c := range n.Children {
			w.dec(c)
		}
	}
}
