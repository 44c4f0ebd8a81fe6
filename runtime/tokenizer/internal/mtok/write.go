package mtok

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

const magic = "430 4\n"

// writer collects bytes; a text that is too long for its length field is remembered as an error.
type writer struct {
	b   []byte
	err error
}

func (w *writer) u8(v uint8)   { w.b = append(w.b, v) }
func (w *writer) u16(v uint16) { w.b = binary.LittleEndian.AppendUint16(w.b, v) }
func (w *writer) u32(v int)    { w.b = binary.LittleEndian.AppendUint32(w.b, uint32(v)) }
func (w *writer) bool(v bool) {
	if v {
		w.u8(1)
	} else {
		w.u8(0)
	}
}

func (w *writer) str(s string) {
	if len(s) > math.MaxUint16 && w.err == nil {
		w.err = fmt.Errorf("text of %d bytes, %.20q...: %w", len(s), s, tensor.ErrUnsupported)
	}
	w.u16(uint16(len(s)))
	w.b = append(w.b, s...)
}

// Marshal gives the bytes of a file. A text that is too long for its length field is tensor.ErrUnsupported.
func (m *File) Marshal() ([]byte, error) {
	w := &writer{b: []byte(magic)}
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

func (w *writer) norm(n Normalizer) {
	w.u8(n.Tag)
	switch n.Tag {
	case NormPrepend:
		w.str(n.Content)
	case NormReplace:
		w.str(n.Pattern)
		w.str(n.Content)
	case NormBert, NormBertTable:
		w.bool(n.Clean)
		w.bool(n.Chinese)
		w.bool(n.Accents)
		w.bool(n.Lower)
		if n.Tag == NormBertTable && n.Accents {
			w.table(n.Table)
		}
	case NormTable:
		w.table(n.Table)
	case NormStrip:
		w.bool(n.Left)
		w.bool(n.Right)
	case NormSequence:
		w.u32(len(n.Children))
		for _, c := range n.Children {
			w.norm(c)
		}
	}
}

func (w *writer) table(t []Substitution) {
	w.u32(len(t))
	for _, s := range t {
		w.u32(int(s.Char))
		w.str(s.Text)
	}
}

func (w *writer) pre(n PreTokenizer) {
	w.u8(n.Tag)
	switch n.Tag {
	case PreByteLevel, PreDigits:
		w.bool(n.Flag)
	case PreMetaspace:
		w.str(n.Replacement)
		w.bool(n.Flag)
	case PreSplit:
		w.str(n.Regex)
		w.bool(n.Flag)
		w.u8(n.Behavior)
	case PreSequence:
		w.u32(len(n.Children))
		for _, c := range n.Children {
			w.pre(c)
		}
	}
}

func (w *writer) model(n Model) {
	w.u8(n.Tag)
	w.u32(len(n.Vocab))
	switch n.Tag {
	case ModelBPE:
		w.bool(n.ByteFallback)
		w.bool(n.ByteLevel)
		w.u32(len(n.Merges))
	case ModelWordPiece:
		w.str(n.Unknown)
		w.str(n.Prefix)
		w.u32(n.MaxBytes)
	case ModelUnigram:
		w.u32(int(n.UnknownID))
		w.bool(n.ByteFallback)
	}
	for _, v := range n.Vocab {
		w.str(v.Text)
		w.u32(int(v.ID))
		if n.Tag == ModelUnigram {
			w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(v.Score))
		}
	}
	if n.Tag != ModelBPE {
		return
	}
	for _, e := range n.Merges {
		w.u32(int(e.Left))
		w.u32(int(e.Right))
		w.u32(int(e.Rank))
	}
}

func (w *writer) dec(n Decoder) {
	w.u8(n.Tag)
	switch n.Tag {
	case DecMetaspace, DecWordPiece:
		w.str(n.Content)
		w.bool(n.Flag)
	case DecReplace:
		w.str(n.Pattern)
		w.str(n.Content)
	case DecStrip:
		w.str(n.Content)
		w.u32(int(n.Start))
		w.u32(int(n.Stop))
	case DecSequence:
		w.u32(len(n.Children))
		for _, c := range n.Children {
			w.dec(c)
		}
	}
}
