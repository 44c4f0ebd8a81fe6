package repository

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// Definition is a tokenizer as a tokenizer.json spells it. Other kinds of files are turned into one, so that there is one way
// to understand a tokenizer, and what was understood can be given to other programs.
type Definition struct {
	model                                            json.RawMessage
	normalizer, preTokenizer, postProcessor, decoder part
	// ids are those of the tokens of the model, size is their number.
	ids  map[string]int32
	size int

	added []tokenizer.AddedToken
	// place is where an added token stands in added; next is the id of the next one that the model lacks.
	place map[string]int
	next  int
}

func unsupported(kind, what string) error {
	return fmt.Errorf("%s %s: %w", kind, what, tensor.ErrUnsupported)
}

// part is what stands in one place of a tokenizer.json; nil is null.
type part map[string]any

// sequenceOf is a Sequence, whose members stand under key. One member stands for itself.
func sequenceOf(key string, members ...part) part {
	switch len(members) {
	case 0:
		return nil
	case 1:
		return members[0]
	}
	return part{"type": "Sequence", key: members}
}

// JSON is the definition as the bytes of a tokenizer.json.
func (d *Definition) JSON() []byte {
	var b bytes.Buffer
	b.WriteString(`{"version":"1.0","truncation":null,"padding":null,"added_tokens":`)
	put := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			panic("internal error: " + err.Error())
		}
		b.Write(text)
	}
	put(addedParts(d.added))
	for _, p := range []struct {
		name string
		part part
	}{
		{"normalizer", d.normalizer}, {"pre_tokenizer", d.preTokenizer},
		{"post_processor", d.postProcessor}, {"decoder", d.decoder},
	} {
		fmt.Fprintf(&b, `,%q:`, p.name)
		put(p.part)
	}
	// The model is large; it is not looked through once more.
	b.WriteString(`,"model":`)
	b.Write(d.model)
	b.WriteString("}\n")
	return b.Bytes()
}

// addedParts spells added tokens, in the order of their ids.
func addedParts(list []tokenizer.AddedToken) []part {
	out := make([]part, 0, len(list))
	for _, a := range slices.SortedFunc(slices.Values(list), func(a, b tokenizer.AddedToken) int { return cmp.Compare(a.ID, b.ID) }) {
		out = append(out, part{
			"id": a.ID, "content": a.Content, "single_word": a.SingleWord, "lstrip": a.LStrip, "rstrip": a.RStrip,
			"normalized": a.Normalized, "special": a.Special,
		})
	}
	return out
}

// Tokenizer reads the definition.
func (d *Definition) Tokenizer() (*tokenizer.Tokenizer, error) {
	return tokenizer.Load(d.JSON())
}

// setVocabulary sets the tokens of the model.
func (d *Definition) setVocabulary(tokens []string) {
	d.ids, d.size, d.next = make(map[string]int32, len(tokens)), len(tokens), len(tokens)
	for id, token := range tokens {
		d.ids[token] = int32(id)
	}
}

// add adds a token, under the id that the library `tokenizers` gives it. One that was added before keeps its id and takes
// the new settings.
func (d *Definition) add(a tokenizer.AddedToken) {
	if a.Content == "" {
		return
	}
	if at, ok := d.place[a.Content]; ok {
		a.ID = d.added[at].ID
		d.added[at] = a
		return
	}
	if id, ok := d.ids[a.Content]; ok {
		a.ID = id
	} else {
		a.ID = int32(d.next)
		d.next++
	}
	if d.place == nil {
		d.place = map[string]int{}
	}
	d.place[a.Content] = len(d.added)
	d.added = append(d.added, a)
}

// bpeModel spells the model BPE. Tokens are in the order of their ids.
func (d *Definition) bpeModel(tokens []string, merges []impliedMerge, settings part) {
	var b []byte
	b = append(b, `{"type":"BPE"`...)
	b = appendSettings(b, settings)
	b = append(b, `,"vocab":{`...)
	d.setVocabulary(tokens)
	for id, token := range tokens {
		if id > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(appendJSON(b, token), ':'), int64(id), 10)
	}
	b = append(b, `},"merges":[`...)
	for i, m := range merges {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendJSON(append(b, '['), m.left), ',')
		b = append(appendJSON(b, m.right), ']')
	}
	d.model = append(b, "]}"...)
}

// unigramModel spells the model Unigram. It takes the pieces with their scores.
func (d *Definition) unigramModel(pieces []spPiece, settings part) {
	var b []byte
	b = append(b, `{"type":"Unigram"`...)
	b = appendSettings(b, settings)
	b = append(b, `,"vocab":[`...)
	tokens := make([]string, len(pieces))
	for id, p := range pieces {
		tokens[id] = p.text
		if id > 0 {
			b = append(b, ',')
		}
		b = append(appendJSON(append(b, '['), p.text), ',')
		b = append(strconv.AppendFloat(b, float64(p.score), 'g', -1, 64), ']')
	}
	d.setVocabulary(tokens)
	d.model = append(b, "]}"...)
}

func appendSettings(b []byte, settings part) []byte {
	text, err := json.Marshal(settings)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	if len(settings) == 0 {
		return b
	}
	return append(append(b, ','), text[1:len(text)-1]...)
}

// appendJSON spells a text, which is UTF-8. Most tokens need no escapes.
func appendJSON(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' {
			text, err := json.Marshal(s)
			if err != nil {
				panic("internal error: " + err.Error())
			}
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
