package tokenizer

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/runtime/tensor"
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
			return nil, fmt.Errorf("line %d, %.40q, is no token and its rank: %w", number, line, tensor.ErrCorrupt)
		}
		token, err := base64.StdEncoding.DecodeString(string(text))
		if err != nil || len(token) == 0 {
			return nil, fmt.Errorf("line %d, %.40q, is no token in base64: %w", number, text, tensor.ErrCorrupt)
		}
		id, err := strconv.ParseUint(string(rank), 10, 31)
		if err != nil || id >= uint64(lines) {
			return nil, fmt.Errorf("line %d, rank %.20q in a file of %d lines: %w", number, rank, lines, tensor.ErrCorrupt)
		}
		for int(id) >= len(ranks) {
			ranks = append(ranks, "")
		}
		if ranks[id] != "" {
			return nil, fmt.Errorf("line %d, rank %d, is there already: %w", number, id, tensor.ErrCorrupt)
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
		if len(token) > maxPieceBytes {
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

// define makes the tokenizer of a vocabulary that begins at id first, behind other tokens. A word that is a token as a whole is
// taken whole, as the library does; any other is merged.
func (r tiktokenRanks) define(before []string, pattern string) *Definition {
	ranks := make(map[string]int32, len(r))
	tokens := slices.Clone(before)
	for id, token := range r {
		ranks[token] = int32(id)
		tokens = append(tokens, toStandIns(token))
	}
	merges := impliedMerges(ranks, true)
	for i, m := range merges {
		merges[i].left, merges[i].right = toStandIns(m.left), toStandIns(m.right)
	}
	settings := bpeSettings("", false, false)
	settings["ignore_merges"] = true
	d := &Definition{preTokenizer: splitBytes(pattern, false), decoder: byteLevelPart(&Config{})}
	d.bpeModel(tokens, merges, settings)
	return d
}

// tiktokenFacts are what the code of a tokenizer class says that no file of the repository does.
type tiktokenFacts struct {
	pattern string
	// special are the tokens behind those of the file, in order.
	special func(ranks int) []string
	prefix  []string // put before every text
}

const (
	// qwenPattern is that of QWenTokenizer, in tokenization_qwen.py of Qwen/Qwen-7B.
	qwenPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// cl100kPattern is that of ChatGLM4Tokenizer and of TikTokenConverter in transformers.
	cl100kPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// kimiPattern is that of TikTokenTokenizer, in tokenization_kimi.py of moonshotai/Kimi-K2-Instruct.
	kimiPattern = `[\p{Han}]+|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// tiktokenClasses are the classes whose Python code was read.
var tiktokenClasses = map[string]tiktokenFacts{
	"QWenTokenizer": {pattern: qwenPattern, special: func(int) []string {
		list := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
		for i := range 205 {
			list = append(list, fmt.Sprintf("<|extra_%d|>", i))
		}
		return list
	}},
	"HYTokenizer": {pattern: qwenPattern, special: func(int) []string {
		list := []string{"<|startoftext|>", "<|extra_0|>", "<|extra_4|>", "<|extra_5|>", "<|eos|>"}
		return list
	}},
	"TikTokenTokenizer": {pattern: kimiPattern, special: func(ranks int) []string {
		list := make([]string, 256)
		for i := range list {
			list[i] = fmt.Sprintf("<|reserved_token_%d|>", ranks+i)
		}
		return list
	}},
	"ChatGLM4Tokenizer": {pattern: cl100kPattern, special: func(int) []string { return nil }, prefix: []string{"[gMASK]", "<sop>"}},
}
