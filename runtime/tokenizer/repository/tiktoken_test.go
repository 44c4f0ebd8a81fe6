package repository

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// The library tiktoken gave these ids with the patterns of the classes; see testdata/tiktoken/make.py.
func TestTiktokenLibrary(t *testing.T) {
	var golden struct {
		Texts []string
		IDs   map[string][][]int32
	}
	tokenizertest.ReadJSON(t, "tiktoken/goldens.json", &golden)
	file := tokenizertest.ReadFile(t, "tiktoken/small.tiktoken")
	for class, want := range golden.IDs {
		t.Run(class, func(t *testing.T) {
			c := &Config{Class: class, Remote: true}
			for i, text := range []string{"[gMASK]", "<sop>"} {
				if class == "ChatGLM4Tokenizer" {
					c.added = append(c.added, tokenizer.AddedToken{ID: int32(600 + i), Content: text, Special: true})
				}
			}
			d, err := c.Tiktoken(file)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := d.Tokenizer()
			if err != nil {
				t.Fatal(err)
			}
			for i, text := range golden.Texts {
				if got := tok.Encode(text, false); !slices.Equal(got, want[i]) {
					t.Errorf("%q: %v, want %v", text, got, want[i])
				}
			}
			if p := tok.PrefixIDs(); class == "ChatGLM4Tokenizer" && !slices.Equal(p, []int32{600, 601}) {
				t.Errorf("prefix %v", p)
			}
		})
	}
}

func TestTiktokenSpecial(t *testing.T) {
	file := tokenizertest.ReadFile(t, "tiktoken/small.tiktoken")
	kimi := &Config{Class: "TikTokenTokenizer", added: []tokenizer.AddedToken{{ID: 602, Content: "<|im_end|>", Special: true}}}
	for _, c := range []struct {
		config *Config
		token  string
		id     int32
	}{
		{&Config{Class: "QWenTokenizer"}, "<|im_end|>", 602},
		{&Config{Class: "QWenTokenizer"}, "<|extra_204|>", 807},
		{kimi, "<|im_end|>", 602},
		{kimi, "<|reserved_token_855|>", 855},
		{&Config{added: []tokenizer.AddedToken{{ID: 603, Content: "<x>", Special: true}}}, "<x>", 603},
		{&Config{added: []tokenizer.AddedToken{{ID: 603, Content: "<x>", Special: true}}}, "<|reserved_token_601|>", 601},
	} {
		d, err := c.config.Tiktoken(file)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := d.Tokenizer()
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := tok.ID(c.token); !ok || id != c.id {
			t.Errorf("%s: %s is %d, want %d", c.config.Class, c.token, id, c.id)
		}
	}
}

func TestBadTiktoken(t *testing.T) {
	whole := tiktokenFile()
	for _, c := range []struct {
		name, file string
		want       error
		text       string
	}{
		{"empty", "", tensor.ErrCorrupt, "byte 0x00"},
		{"no rank", whole + "YQ==\n", tensor.ErrCorrupt, "line 264"},
		{"no base64", whole + "*** 263\n", tensor.ErrCorrupt, "base64"},
		{"rank twice", whole + "eHl6 3\n", tensor.ErrCorrupt, "rank 3"},
		{"large rank", whole + "eHl6 99999\n", tensor.ErrCorrupt, "rank"},
		{"token twice", whole + "aGU= 263\n", tensor.ErrCorrupt, "both"},
		{"long", whole + strings.Repeat("YWFh", 400) + " 263\n", tensor.ErrUnsupported, "1200 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := (&Config{Class: "QWenTokenizer"}).Tiktoken([]byte(c.file))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
	_, err := (&Config{Class: "OtherTokenizer", Remote: true}).Tiktoken([]byte(whole))
	if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "OtherTokenizer") {
		t.Error(err)
	}
}

func TestTekken(t *testing.T) {
	d, err := new(Config).Tekken([]byte(tekkenText()))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := d.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	// 25 special tokens, of which the file names none; two tokens of the file are beyond the vocabulary.
	if got, want := tok.Encode("[INST]hell wor", false), []int32{3, 25 + 258, 25 + ' ', 25 + 'w', 25 + 260}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if id, ok := tok.ID("<SPECIAL_24>"); !ok || id != 24 {
		t.Errorf("<SPECIAL_24> is %d", id)
	}
	for text, want := range map[string]string{
		`"default_vocab_size":286`:        `"default_vocab_size":999`,
		`"pattern":"\\S+|\\s+"`:           `"pattern":""`,
		`"rank":7,`:                       `"rank":8,`,
		`"default_num_special_tokens":25`: `"default_num_special_tokens":5`,
		`{"config"`:                       `{"special_tokens":[{"rank":0,"token_str":"a"},{"rank":0,"token_str":"b"}],"config"`,
	} {
		if _, err := new(Config).Tekken([]byte(strings.Replace(tekkenText(), text, want, 1))); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
