package tokenizer

import "encoding/json"

// piece is a part of a text within the pre-tokenizer.
type piece struct {
	text string
	// head is how many bytes at its start came of the first character of the text given to Encode, see aligned.
	head int
}

// part is the part of p between two bytes.
func (p piece) part(from, to int) piece {
	return piece{p.text[from:to], min(max(p.head-from, 0), to-from)}
}

// preTokenizer cuts a piece. It calls yield with the parts in order; p is not empty, and neither are the parts.
type preTokenizer interface {
	split(p piece, yield func(piece))
}

// preTokenizers are the types of the key "pre_tokenizer".
var preTokenizers components[preTokenizer]

func init() {
	preTokenizers = components[preTokenizer]{"pre-tokenizer", map[string]func(json.RawMessage, int) (preTokenizer, error){
		"BertPreTokenizer": constant[preTokenizer]("pre-tokenizer", "BertPreTokenizer",
			preTokenizerSequence{blanks, &charStage{isPunctuation, isolated, punctuationRegex}}),
		"ByteLevel":          readByteLevel,
		"CharDelimiterSplit": readCharDelimiterSplit,
		"Digits":             readDigits,
		"FixedLength":        readFixedLength,
		"Metaspace":          readMetaspace,
		"Punctuation":        readPunctuation,
		"Sequence":           readPreTokenizerSequence,
		"Split":              readSplit,
		"UnicodeScripts":     readUnicodeScripts,
		"Whitespace":         constant[preTokenizer]("pre-tokenizer", "Whitespace", whitespaceStage{}),
		"WhitespaceSplit":    constant[preTokenizer]("pre-tokenizer", "WhitespaceSplit", blanks),
	}}
}

// preTokenizerSequence is the pre-tokenizer Sequence: each step cuts the parts of the previous one.
type preTokenizerSequence []preTokenizer

func readPreTokenizerSequence(raw json.RawMessage, depth int) (preTokenizer, error) {
	list, err := preTokenizers.sequence("pretokenizers", raw, depth)
	return preTokenizerSequence(list), err
}

func (l preTokenizerSequence) split(p piece, yield func(piece)) {
	switch len(l) {
	case 0:
		yield(p)
	case 1:
		l[0].split(p, yield)
	default:
		l[0].split(p, func(part piece) { l[1:].split(part, yield) })
	}
}

// flat unfolds sequences within sequences.
func (l preTokenizerSequence) flat() preTokenizerSequence {
	var out preTokenizerSequence
	for _, p := range l {
		if inner, ok := p.(preTokenizerSequence); ok {
			out = append(out, inner.flat()...)
		} else {
			out = append(out, p)
		}
	}
	return out
}
