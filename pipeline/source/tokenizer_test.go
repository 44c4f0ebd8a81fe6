package source

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// models are the vocabularies that the tokenizer package trains for its tests.
const models = "../../runtime/tokenizer/testdata/"

func TestLoadTokenizer(t *testing.T) {
	t.Parallel()
	llama := `{"tokenizer_class":"LlamaTokenizer","add_bos_token":true}`
	for _, c := range []struct {
		name   string
		copies map[string]string
		files  map[string]string
		text   string
		ids    []int32
		want   error
		says   string
	}{
		{name: "SentencePiece", copies: map[string]string{"tokenizer.model": "sentencepiece/bpe.model"},
			files: map[string]string{"tokenizer_config.json": llama}, text: "<s>", ids: []int32{1, 1}},
		{name: "tokenizer.json wins", copies: map[string]string{"tokenizer.model": "sentencepiece/bpe.model", "tokenizer.json": "gpt2.tokenizer.json"},
			text: "a", ids: []int32{64}},
		{name: "tokenizer.json with tokens elsewhere", copies: map[string]string{"tokenizer.json": "gpt2.tokenizer.json"},
			files: map[string]string{"added_tokens.json": `{"<new>":703}`, "tokenizer_config.json": `{"added_tokens_decoder":{"703":{"content":"<new>","lstrip":true,"special":true}}}`},
			text:  "a <new>", ids: []int32{64, 703}},
		{name: "tiktoken", copies: map[string]string{"qwen.tiktoken": "tiktoken/small.tiktoken"},
			files: map[string]string{"tokenizer_config.json": `{"tokenizer_class":"QWenTokenizer","auto_map":{"AutoTokenizer":["a.B",null]}}`},
			text:  "a<|im_end|>", ids: []int32{97, 602}},
		{name: "tiktoken as tokenizer.model", copies: map[string]string{"tokenizer.model": "tiktoken/small.tiktoken"},
			files: map[string]string{"tokenizer_config.json": `{"tokenizer_class":"TikTokenTokenizer"}`}, text: "a", ids: []int32{97}},
		{name: "nothing", want: tensor.ErrUnsupported, says: "neither tokenizer.json nor"},
		{name: "unknown code", copies: map[string]string{"tokenizer.model": "sentencepiece/bpe.model"},
			files: map[string]string{"tokenizer_config.json": `{"tokenizer_class":"OddTokenizer","auto_map":{"AutoTokenizer":["a.B",null]}}`},
			want:  tensor.ErrUnsupported, says: "tokenizer.model: tokenizer class OddTokenizer"},
		{name: "bad settings", copies: map[string]string{"tokenizer.model": "sentencepiece/bpe.model"},
			files: map[string]string{"tokenizer_config.json": `{"added_tokens_decoder":{"x":{"content":"a"}}}`},
			want:  tensor.ErrCorrupt, says: `tokenizer_config.json: added_tokens_decoder: id "x"`},
		{name: "WordPiece", files: map[string]string{"vocab.txt": "a\n"}, want: tensor.ErrUnsupported, says: "vocab.txt: "},
		{name: "no merges", files: map[string]string{"vocab.json": "{}"}, want: tensor.ErrUnsupported, says: "merges.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, from := range c.copies {
				b, err := os.ReadFile(filepath.Join(models, from))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			tok, err := LoadTokenizer(dir)
			if c.want != nil {
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want %v with %q", err, c.want, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := tok.Encode(c.text, true); !slices.Equal(got, c.ids) {
				t.Errorf("%q: %v, want %v", c.text, got, c.ids)
			}
			// Other programs get one file, without those next to it.
			b, err := TokenizerJSON(dir)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := tokenizer.Load(b)
			if err != nil {
				t.Fatal(err)
			}
			if got := whole.Encode(c.text, true); !slices.Equal(got, c.ids) || !slices.Equal(whole.AddedTokens(), tok.AddedTokens()) {
				t.Errorf("%q by TokenizerJSON: %v, want %v; added tokens %v, want %v", c.text, got, c.ids, whole.AddedTokens(), tok.AddedTokens())
			}
		})
	}
}

// GPT2Tokenizer of transformers 5 forgets that digits are apart; the file is followed and a note says so.
func TestFileIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := os.ReadFile(models + "gpt2.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"tokenizer.json": string(b), "tokenizer_config.json": `{"tokenizer_class":"Qwen2Tokenizer"}`, "config.json": `{"model_type":"llama"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := LoadTokenizer(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := tok.Notes(); len(n) != 1 || !strings.Contains(n[0], "pre-tokenizer than Qwen2Tokenizer") {
		t.Errorf("notes %q", n)
	}
}
