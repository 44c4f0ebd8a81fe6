package repository

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
)

// tiktokenRanks are the tokens of a byte-level vocabulary by rank, which is the id.
type tiktokenRanks []string

// readTiktoken reads a file of the library `tiktoken`: a line for each token, its bytes in base64, a space, its rank. Every
// rank from 0 on must be there once, and every byte must be a token.
func readTiktoken(b []byte) (tiktokenRanks, error) {
	lines := bytes.Count(b, []byte{'\n'}) + 1
	ranks := make(tiktokenRanks, 0, lines)
	number := 0
	for line := range bytes.Lines(b) {
		number++
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			continue
		}
		text, rank, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			return nil, fmt.Errorf("line %d, %.40q, is not a token and its rank: %w", number, line, tensor.ErrCorrupt)
		}
		token, err := base64.StdEncoding.DecodeString(string(text))
		if err != nil || len(token) == 0 {
			return nil, fmt.Errorf("line %d, %.40q, is not a token in base64: %w", number, text, tensor.ErrCorrupt)
		}
		id, err := strconv.ParseUint(string(rank), 10, 31)
		if err != nil || id >= uint64(lines) {
			return nil, fmt.Errorf("line %d, rank %.20q in a file of %d lines: %w", number, rank, lines, tensor.ErrCorrupt)
		}
		for int(id) >= len(ranks) {
			ranks = append(ranks, "")
		}
		if ranks[id] != "" {
			return nil, fmt.Errorf("line %d: rank %d is a duplicate: %w", number, id, tensor.ErrCorrupt)
		}
		ranks[id] = string(token)
	}
	return ranks, ranks.check()
}

func (r tiktokenRanks) check() error {
	seen := make(map[string]int, len(r))
	for id, token := range r {
		if token == "" {
			return fmt.Errorf("no token of rank %d: %w", id, tensor.ErrCorrupt)
		}
		if len(token) > maxVocabularyBytes {
			return unsupported(fmt.Sprintf("token %d", id), fmt.Sprintf("of %d bytes", len(token)))
		}
		if first, ok := seen[token]; ok {
			return fmt.Errorf("tokens %d and %d are both %q: %w", first, id, token, tensor.ErrCorrupt)
		}
		seen[token] = id
	}
	for c := range 256 {
		if _, ok := seen[string([]byte{byte(c)})]; !ok {
			return fmt.Errorf("no token for the byte 0x%02X: %w", c, tensor.ErrCorrupt)
		}
	}
	return nil
}

// define makes the tokenizer of a vocabulary whose ids begin after those of other tokens. A word that is a whole token is not
// merged, as in the library.
func (r tiktokenRanks) define(before []string, pattern string) *Definition {
	ranks := make(map[string]int32, len(r))
	tokens := slices.Clone(before)
	for id, token := range r {
		ranks[token] = int32(id)
		tokens = append(tokens, bytelevel.Encode(token))
	}
	merges := impliedMerges(ranks, true)
	for i, m := range merges {
		merges[i].left, merges[i].right = bytelevel.Encode(m.left), bytelevel.Encode(m.right)
	}
	settings := bpeSettings("", false, false)
	settings["ignore_merges"] = true
	d := &Definition{preTokenizer: splitBytes(pattern, false), decoder: byteLevelPart(&Config{})}
	d.bpeModel(tokens, merges, settings)
	return d
}

// tiktokenClass holds the facts that only the Python code of a tokenizer class has.
type tiktokenClass struct {
	nfc     bool
	pattern string
	// special returns the tokens after those of the file, whose number it takes; the repository may rename them.
	special func(ranks int) []string
	// prefix stands before every text.
	prefix []string
}

const (
	// cl100kPattern is that of ChatGLM4Tokenizer and of TikTokenConverter in transformers.
	cl100kPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// kimiPattern is that of TikTokenTokenizer.
	kimiPattern = `[\p{Han}]+|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// tiktokenClasses are the classes whose Python code was read, in tokenization_qwen.py of Qwen 1, tokenization_kimi.py of Kimi K2
// and tokenization_chatglm.py of GLM 4.
var tiktokenClasses = map[string]tiktokenClass{
	"QWenTokenizer": {nfc: true, pattern: qwen2Pattern, special: func(int) []string {
		return append([]string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, numbered("<|extra_%d|>", 0, 205)...)
	}},
	"TikTokenTokenizer": {pattern: kimiPattern, special: func(ranks int) []string {
		return numbered("<|reserved_token_%d|>", ranks, 256)
	}},
	"ChatGLM4Tokenizer": {pattern: cl100kPattern, special: func(int) []string { return nil }, prefix: []string{"[gMASK]", "<sop>"}},
}

func numbered(format string, from, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, from+i)
	}
	return list
}

// Tiktoken reads the tiktoken file of a repository. The class determines how texts are cut and which tokens follow those of
// the file; an unknown class is tensor.ErrUnsupported. The ids are those of the class with the library `tiktoken`.
func (c *Config) Tiktoken(b []byte) (*Definition, error) {
	k, ok := tiktokenClasses[c.Class]
	if !ok && !c.Remote {
		// TokenizersBackend takes any such file, and reserves names up to the last token of the repository.
		k, ok = tiktokenClass{pattern: cl100kPattern, special: func(int) []string { return nil }}, c.class() == nil
	}
	if !ok {
		return nil, unsupported("tokenizer class", fmt.Sprintf("%q with a tiktoken vocabulary", c.Class))
	}
	ranks, err := readTiktoken(b)
	if err != nil {
		return nil, err
	}
	special := k.special(len(ranks))
	listed := make(map[int32]tokenizer.AddedToken, len(c.added))
	for _, a := range c.added {
		listed[a.ID] = a
	}
	if n := len(c.added); n > 0 {
		const slack = 1 << 12
		last := int(c.added[n-1].ID) + 1 - len(ranks)
		if last > n+len(special)+slack {
			return nil, unsupported(fmt.Sprintf("added token %q", c.added[n-1].Content), fmt.Sprintf("with id %d", c.added[n-1].ID))
		}
		if last > len(special) {
			special = append(special, numbered("<|reserved_token_%d|>", len(ranks)+len(special), last-len(special))...)
		}
	}
	d := ranks.define(nil, k.pattern)
	if k.nfc {
		d.normalizer = part{"type": "NFC"}
	}
	for i, text := range special {
		a, ok := listed[int32(len(ranks)+i)]
		if !ok {
			a = tokenizer.AddedToken{Content: text, Special: true}
		}
		d.add(a)
	}
	if tiktokenClasses[c.Class].pattern != "" {
		return d, d.surround(k.prefix, nil)
	}
	d.apply(c)
	return d, d.frame(c)
}
