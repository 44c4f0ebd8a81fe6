package repository

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// tiktokenFile has a token for every byte and some for words.
func tiktokenFile() string {
	var b strings.Builder
	rank := 0
	line := func(token string) {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), rank)
		rank++
	}
	for c := range 256 {
		line(string([]byte{byte(c)}))
	}
	for _, token := range []string{"he", "ll", "hell", " w", "or", " wor", "\xe6\x97"} {
		line(token)
	}
	return b.String()
}

// tekkenText is a tekken.json with the same tokens.
func tekkenText() string {
	var tokens []string
	for i, line := range strings.Split(strings.TrimSpace(tiktokenFile()), "\n") {
		text, _, _ := strings.Cut(line, " ")
		tokens = append(tokens, fmt.Sprintf(`{"rank":%d,"token_bytes":%q}`, i, text))
	}
	return `{"config":{"pattern":"\\S+|\\s+","default_vocab_size":286,"default_num_special_tokens":25,"version":"v3"},"vocab":[` +
		strings.Join(tokens, ",") + `]}`
}

// held checks what a reader of a file made of any bytes: an error of ours and nothing else, or a tokenizer that works.
func held(t *testing.T, d *Definition, err error) {
	if err != nil {
		if d != nil && !errors.Is(err, tensor.ErrCorrupt) || !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
			t.Fatalf("definition %v, error %v", d != nil, err)
		}
		return
	}
	tok, err := d.Tokenizer()
	if err != nil {
		if !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
			t.Fatal(err)
		}
		return
	}
	for _, id := range tok.Encode("hello  wor\tld <s> \u65e5\u0301\xff", true) {
		if _, ok := tok.Token(id); !ok {
			t.Fatalf("id %d is no token", id)
		}
		tok.Piece(id)
	}
}

func FuzzSentencePiece(f *testing.F) {
	files, err := filepath.Glob("../testdata/sentencepiece/*.model")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DefineSentencePiece(b)
		held(t, d, err)
		c := &Config{Class: "LlamaTokenizer"}
		d, err = c.SentencePiece(b)
		held(t, d, err)
	})
}

func FuzzTiktoken(f *testing.F) {
	f.Add(tiktokenFile(), "QWenTokenizer")
	f.Add(tiktokenFile(), "TikTokenTokenizer")
	f.Add("aGU= 0\n", "")
	f.Fuzz(func(t *testing.T, b, class string) {
		d, err := (&Config{Class: class}).Tiktoken([]byte(b))
		held(t, d, err)
	})
}

func FuzzTekken(f *testing.F) {
	f.Add(tekkenText())
	f.Add(`{"config":{"pattern":"x"},"vocab":[],"special_tokens":[{"rank":0,"token_str":"<s>"}]}`)
	f.Fuzz(func(t *testing.T, b string) {
		d, err := new(Config).Tekken([]byte(b))
		held(t, d, err)
	})
}

func FuzzConfig(f *testing.F) {
	f.Add(`{"tokenizer_class":"LlamaTokenizerFast","bos_token":"<s>","added_tokens_decoder":{"1":{"content":"<s>"}},"auto_map":[]}`,
		`{"pad_token":{"content":"<pad>","lstrip":true}}`, `{"<q>":5}`)
	f.Add(`{"extra_special_tokens":{"image_token":"<image>"},"add_bos_token":true}`, `{}`, `{}`)
	f.Fuzz(func(t *testing.T, config, special, added string) {
		c, err := ReadConfig(ConfigFiles{TokenizerConfig: []byte(config), SpecialTokensMap: []byte(special), AddedTokens: []byte(added)})
		if (c == nil) == (err == nil) {
			t.Fatalf("config %v, error %v", c, err)
		}
		if err != nil && !errors.Is(err, tensor.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
