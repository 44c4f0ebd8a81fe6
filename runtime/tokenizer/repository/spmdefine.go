package repository

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// metaspace stands for a space in pieces.
const metaspace = "▁"

// DefineSentencePiece reads a .model file of the library `sentencepiece` and defines the tokenizer that gives the ids of that
// library for any text in which no piece of type control or user-defined is spelled out. Those pieces become added tokens,
// which are found in the text; the library finds user-defined ones only. A model of type unigram with byte_fallback also takes
// the spelling of a byte, such as <0x41>, for that byte.
//
// Models of type word and pieces of type unused are tensor.ErrUnsupported, as are white space as a suffix and unescaped
// spaces; bytes that are not such a file are tensor.ErrCorrupt.
func DefineSentencePiece(b []byte) (*Definition, error) {
	m, err := readSentencePiece(b)
	if err != nil {
		return nil, err
	}
	return m.define()
}

func (m *sentencePiece) define() (*Definition, error) {
	t, n := m.trainer, m.normalizer
	switch {
	case t.whitespaceSuffix:
		return nil, unsupported("trainer_spec", "with treat_whitespace_as_suffix")
	case !n.escapeSpaces:
		return nil, unsupported("normalizer_spec", "without escape_whitespaces")
	}
	for id, p := range m.pieces {
		if p.kind == spUnused {
			return nil, unsupported(fmt.Sprintf("piece %d, %q,", id, p.text), "of type unused")
		}
	}
	d := &Definition{}
	switch t.model {
	case spUnigram:
		d.unigramModel(m.pieces, part{"unk_id": m.unknown(), "byte_fallback": t.byteFallback})
	case spBPE, spChar:
		tokens := m.tokens()
		var merges []impliedMerge
		if t.model == spBPE {
			if err := m.spellBytes(tokens); err != nil {
				return nil, err
			}
			merges = impliedMerges(m.ranksByScore(tokens), false)
		}
		d.bpeModel(tokens, merges, bpeSettings(tokens[m.unknown()], true, t.byteFallback))
	case spWord:
		return nil, unsupported("model type", "WORD")
	default:
		return nil, unsupported("model type", fmt.Sprint(t.model))
	}
	d.addPieces(m.pieces)

	var steps []part
	if len(n.charsMap) > 0 {
		steps = append(steps, part{"type": "Precompiled", "precompiled_charsmap": n.charsMap})
	}
	if n.removeExtraSpaces {
		steps = append(steps, replacePattern(`\A +`, ""), replacePattern(" {2,}", " "))
	}
	if n.dummyPrefix {
		steps = append(steps, part{"type": "Prepend", "prepend": metaspace})
	}
	steps = append(steps, replaceLiteral(" ", metaspace))
	if n.removeExtraSpaces {
		// At the end, marks that are in the text itself go too.
		steps = append(steps, replacePattern(metaspace+`+\z`, ""))
	}
	d.normalizer = sequenceOf("normalizers", steps...)
	d.decoder = spDecoder(n.dummyPrefix)
	return d, nil
}

// spDecoder undoes the spelling of spaces and bytes.
func spDecoder(strip bool) part {
	steps := []part{replaceLiteral(metaspace, " "), {"type": "ByteFallback"}, {"type": "Fuse"}}
	if strip {
		steps = append(steps, part{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	return sequenceOf("decoders", steps...)
}

func replaceLiteral(from, to string) part {
	return part{"type": "Replace", "pattern": part{"String": from}, "content": to}
}

func replacePattern(from, to string) part {
	return part{"type": "Replace", "pattern": part{"Regex": from}, "content": to}
}

// bpeSettings are those of the model BPE; an empty unk is none.
func bpeSettings(unk string, fuse, byteFallback bool) part {
	c := part{
		"dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": fuse, "byte_fallback": byteFallback, "ignore_merges": false,
	}
	if unk != "" {
		c["unk_token"] = unk
	}
	return c
}

func (m *sentencePiece) tokens() []string {
	tokens := make([]string, len(m.pieces))
	for id, p := range m.pieces {
		tokens[id] = p.text
	}
	return tokens
}

// unknown is the id of the unknown piece; check ensures that there is one.
func (m *sentencePiece) unknown() int {
	return slices.IndexFunc(m.pieces, func(p spPiece) bool { return p.kind == spUnknown })
}

// ranksByScore ranks pieces as the library merges them: the highest score first.
func (m *sentencePiece) ranksByScore(tokens []string) map[string]int32 {
	order := make([]int, 0, len(m.pieces))
	for id, p := range m.pieces {
		if p.kind == spNormal {
			order = append(order, id)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(m.pieces[b].score, m.pieces[a].score) })
	ranks := make(map[string]int32, len(order))
	for rank, id := range order {
		ranks[tokens[id]] = int32(rank)
	}
	// A byte that is spelled as its character is a part of pieces, but the result of none.
	for id, p := range m.pieces {
		if p.kind == spByte && tokens[id] != p.text {
			ranks[tokens[id]] = int32(len(order) + id)
		}
	}
	return ranks
}

// spellBytes spells a byte as its character if longer pieces consist of it and it is not a piece itself. The library merges
// any two neighbours whose joined texts are a piece, even if one of them is not: Gemma has runs of tabs, but no single tab.
func (m *sentencePiece) spellBytes(tokens []string) error {
	known := make(map[string]bool, len(tokens))
	for _, token := range tokens {
		known[token] = true
	}
	for _, p := range m.pieces {
		if p.kind != spNormal || utf8.RuneCountInString(p.text) == 1 {
			continue
		}
		for _, r := range p.text {
			c := string(r)
			if known[c] {
				continue
			}
			at := -1
			if r < utf8.RuneSelf && m.trainer.byteFallback {
				at = slices.Index(tokens, fmt.Sprintf("<0x%02X>", r))
			}
			if at < 0 {
				return unsupported(fmt.Sprintf("piece %q", p.text), fmt.Sprintf("with %q, which is not a piece", c))
			}
			tokens[at], known[c] = c, true
		}
	}
	return nil
}

// addPieces makes added tokens of the control and the user-defined pieces, the former special.
func (d *Definition) addPieces(pieces []spPiece) {
	for _, p := range pieces {
		if p.kind == spControl || p.kind == spUserDefined {
			d.add(tokenizer.AddedToken{Content: p.text, Special: p.kind == spControl})
		}
	}
}
