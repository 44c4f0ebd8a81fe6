package engine

import (
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/trie"
)

// Tokenizer is a tokenizer.mtok in memory, and encodes and decodes as the LLM engine of MNN 3.5.0 to 3.6.1 does. It does
// not change and is safe for concurrent use.
//
// The releases give the same ids for every file that they read; see Since.
type Tokenizer struct {
	file       *mtok.File
	normalizer normalizer
	stages     []stage
	model      model
	decoder    decoder
	special    specialTexts
	added      *trie.Trie // of indices into file.Added
	size       int
}

// Open reads the bytes of a tokenizer.mtok. Files that the engine would misread are tensor.ErrCorrupt; those with which it
// never ends or has undefined results are tensor.ErrUnsupported. Memory is proportional to len(b).
func Open(b []byte) (*Tokenizer, error) {
	e, err := open(b)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.mtok: %w", err)
	}
	return e, nil
}

func open(b []byte) (*Tokenizer, error) {
	m, err := mtok.Parse(b)
	if err != nil {
		return nil, err
	}
	if err := CheckNormalizer(&m.Normalizer); err != nil {
		return nil, err
	}
	e := &Tokenizer{file: m, normalizer: newNormalizer(&m.Normalizer), size: len(m.Model.Vocab), decoder: newDecoder(&m.Decoder)}
	if e.stages, err = newStages(&m.PreTokenizer); err != nil {
		return nil, err
	}
	byID := make([]string, len(m.Model.Vocab))
	for _, v := range m.Model.Vocab {
		byID[v.ID] = v.Text
	}
	switch m.Model.Tag {
	case mtok.ModelBPE:
		// The last mapping of bytes to stand-ins is left to the model, which is faster.
		n := len(e.stages)
		mapped := n > 0 && e.stages[n-1] == stage(mapStage{})
		if mapped {
			e.stages = e.stages[:n-1]
		}
		e.model, err = newBPE(&m.Model, byID, mapped)
	case mtok.ModelWordPiece:
		e.model, err = newWordPiece(&m.Model, byID)
	case mtok.ModelUnigram:
		e.model, err = newUnigram(&m.Model, byID)
	}
	if err != nil {
		return nil, err
	}
	if err := CheckPrinted(&m.Decoder, byID); err != nil {
		return nil, err
	}
	for _, list := range [][]int32{m.Special, m.Stop, m.Prefix} {
		for _, id := range list {
			e.size = max(e.size, int(id)+1)
		}
	}
	texts := make([]trie.Entry, len(m.Added))
	for i, a := range m.Added {
		texts[i] = trie.Entry{Text: a.Content, Value: int32(i)}
		e.size = max(e.size, int(a.ID)+1)
	}
	e.added = trie.New(texts)
	e.special = newSpecialTexts(m.Special, e.decode)
	return e, nil
}

// Encode returns the prefix ids and the ids of text, which may be any bytes.
func (e *Tokenizer) Encode(text string) []int32 {
	ids, _ := e.TryEncode(text)
	return ids
}

// TryEncode is Encode with an error, tensor.ErrUnsupported, for a text on which the engine would compute for minutes or
// overflow its stack. The ids are those of its rules.
func (e *Tokenizer) TryEncode(text string) ([]int32, error) {
	r := encoding{Tokenizer: e, ids: append(make([]int32, 0, len(text)/3+len(e.file.Prefix)), e.file.Prefix...)}
	r.yield = make([]func(string), len(e.stages)+1)
	for i := range r.yield {
		r.yield[i] = func(piece string) { r.stage(i, piece) }
	}
	e.special.cut(text, r.between, func(id int32) { r.ids = append(r.ids, id) })
	return r.ids, r.err
}

// encoding is one call of TryEncode.
type encoding struct {
	*Tokenizer
	ids   []int32
	yield []func(string) // these take the pieces for stage i, or for the model
	err   error          // the first
}

// between encodes the text between special tokens.
func (r *encoding) between(s string) {
	last := 0
	for last < len(s) {
		start, stop, index := r.added.Find(s, last)
		if index < 0 {
			break
		}
		t := &r.file.Added[index]
		for t.LStrip && start > last && isSpaceC(s[start-1]) {
			start--
		}
		for t.RStrip && stop < len(s) && isSpaceC(s[stop]) {
			stop++
		}
		r.text(s[last:start])
		r.ids = append(r.ids, t.ID)
		last = stop
	}
	r.text(s[last:])
}

func isSpaceC(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// text encodes the text between added tokens.
func (r *encoding) text(s string) {
	if s != "" {
		s, err := r.normalizer.normalize(s)
		if err != nil && r.err == nil {
			r.err = err
		}
		r.stage(0, s)
	}
}

func (r *encoding) stage(i int, piece string) {
	if piece == "" {
		return
	}
	var err error
	if i < len(r.stages) {
		err = r.stages[i].split(piece, r.yield[i+1])
	} else {
		r.ids, err = r.model.encode(r.ids, piece)
	}
	if r.err == nil {
		r.err = err
	}
}

// Decode returns the text that the engine prints while it generates ids one by one, special tokens included. The text is
// invalid UTF-8 if ids end within a character. Unknown ids have no text with BPE, and that of the unknown token with other
// models.
func (e *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(e.printed(id))
	}
	return b.String()
}

// printed is the text that the engine prints for an id.
func (e *Tokenizer) printed(id int32) string {
	text, _ := printed(e.decode(id))
	return text
}

// decode is the text of an id for the tokenizer itself.
func (e *Tokenizer) decode(id int32) string { return e.decoder.text(e.model.token(id)) }

// Since is the first release of MNN whose engine reads the file: "3.5.0" or "3.6.0". The older one misreads the
// normalizer Strip and ends the process at an empty child of a Sequence.
func (e *Tokenizer) Since() string {
	if newerNorm(&e.file.Normalizer) || newerPre(&e.file.PreTokenizer) {
		return "3.6.0"
	}
	return "3.5.0"
}

func newerNorm(n *mtok.Normalizer) bool {
	for i := range n.Children {
		if n.Children[i].Tag == mtok.NormNone || newerNorm(&n.Children[i]) {
			return true
		}
	}
	return n.Tag == mtok.NormStrip
}

func newerPre(n *mtok.PreTokenizer) bool {
	for i := range n.Children {
		if n.Children[i].Tag == mtok.PreNone || newerPre(&n.Children[i]) {
			return true
		}
	}
	return false
}

// Special lists the ids that are recognised before all others, in the engine's order.
func (e *Tokenizer) Special() []int32 { return append([]int32(nil), e.file.Special...) }

// Stop lists the ids that end generation.
func (e *Tokenizer) Stop() []int32 { return append([]int32(nil), e.file.Stop...) }

// Prefix lists the ids that Encode puts first.
func (e *Tokenizer) Prefix() []int32 { return append([]int32(nil), e.file.Prefix...) }

// ChatTemplate is the Jinja template of the file; llm_config.json may hold another, which then counts.
func (e *Tokenizer) ChatTemplate() string { return e.file.Template }

// EOS is the eos_token of chat templates.
func (e *Tokenizer) EOS() string { return e.file.EOS }

// VocabSize is the largest id of the file plus one: an embedding table needs as many rows. Ids of added tokens may
// lie beyond the vocabulary proper; Decode returns no text for them.
func (e *Tokenizer) VocabSize() int { return e.size }
