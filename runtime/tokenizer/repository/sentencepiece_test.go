package repository

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// The library sentencepiece gave these ids for models of every kind; see testdata/sentencepiece/make.py.
func TestSentencePieceLibrary(t *testing.T) {
	var golden struct {
		Texts []string
		IDs   map[string][][]int32
	}
	tokenizertest.ReadJSON(t, "sentencepiece/goldens.json", &golden)
	if len(golden.IDs) < 7 {
		t.Fatalf("%d models", len(golden.IDs))
	}
	for name, want := range golden.IDs {
		t.Run(name, func(t *testing.T) {
			d, err := DefineSentencePiece(tokenizertest.ReadFile(t, "sentencepiece/"+name+".model"))
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
		})
	}
}

// AutoTokenizer gave these ids for repositories around the same models; see testdata/sentencepiece/autotokenizer.py.
func TestSentencePieceRepositories(t *testing.T) {
	var golden struct {
		Texts []string
		Cases []struct {
			Name, Model string
			Files       map[string]json.RawMessage
			Added       [][3]any
			IDs         [][]int32
		}
	}
	tokenizertest.ReadJSON(t, "sentencepiece/autotokenizer.json", &golden)
	if len(golden.Cases) < 15 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		t.Run(c.Name, func(t *testing.T) {
			config, err := ReadConfig(ConfigFiles{
				TokenizerConfig: c.Files["tokenizer_config.json"], SpecialTokensMap: c.Files["special_tokens_map.json"],
				AddedTokens: c.Files["added_tokens.json"], Model: c.Files["config.json"],
			})
			if err != nil {
				t.Fatal(err)
			}
			d, err := config.SentencePiece(tokenizertest.ReadFile(t, "sentencepiece/"+c.Model+".model"))
			if err != nil {
				t.Fatal(err)
			}
			tok, err := d.Tokenizer()
			if err != nil {
				t.Fatal(err)
			}
			added := tok.AddedTokens()
			if len(added) != len(c.Added) {
				t.Errorf("%d added tokens, want %d", len(added), len(c.Added))
			}
			for i := range min(len(added), len(c.Added)) {
				a, w := added[i], c.Added[i]
				if float64(a.ID) != w[0] || a.Content != w[1] || a.Special != w[2] {
					t.Errorf("added token %d: %+v, want %v", i, a, w)
				}
			}
			for i, text := range golden.Texts {
				if got := tok.Encode(text, true); !slices.Equal(got, c.IDs[i]) {
					t.Errorf("%q: %v, want %v", text, got, c.IDs[i])
				}
			}
		})
	}
}

// piece, trainer and model write parts of a .model file.
func field(number byte, b string) string { return string([]byte{number<<3 | 2, byte(len(b))}) + b }

func pieceField(text string, kind byte) string {
	return field(1, field(1, text)+"\x18"+string([]byte{kind}))
}

func TestBadSentencePiece(t *testing.T) {
	const unk = "\x0a\x09\x0a\x05<unk>\x18\x02"
	for _, c := range []struct {
		name, file string
		want       error
		text       string
	}{
		{"empty", "", tensor.ErrCorrupt, "no pieces"},
		{"text", "hello", tensor.ErrCorrupt, "field"},
		{"cut", unk[:5], tensor.ErrCorrupt, "ends early"},
		{"group", unk + "\x0b", tensor.ErrCorrupt, "wire type 3"},
		{"no unknown piece", pieceField("a", 1), tensor.ErrCorrupt, "unknown"},
		{"two unknown pieces", unk + pieceField("b", 2), tensor.ErrCorrupt, "both the unknown"},
		{"duplicate", unk + pieceField("a", 1) + pieceField("a", 1), tensor.ErrCorrupt, `both "a"`},
		{"type of a piece", unk + pieceField("a", 9), tensor.ErrCorrupt, "type 9"},
		{"not UTF-8", unk + pieceField("\xff", 1), tensor.ErrCorrupt, "piece 1"},
		{"score", unk + field(1, field(1, "a")+"\x15\x00\x00\xc0\x7f"), tensor.ErrCorrupt, "score NaN"},
		{"unused", unk + pieceField("a", 5), tensor.ErrUnsupported, "unused"},
		{"words", unk + field(2, "\x18\x03"), tensor.ErrUnsupported, "WORD"},
		{"suffix", unk + field(2, "\xc0\x01\x01"), tensor.ErrUnsupported, "treat_whitespace_as_suffix"},
		{"unescaped", unk + field(3, "\x28\x00"), tensor.ErrUnsupported, "escape_whitespaces"},
		{"bytes", unk + field(2, "\x98\x02\x01"), tensor.ErrCorrupt, "byte_fallback"},
		{"part", unk + field(2, "\x18\x02") + pieceField("a", 1) + pieceField("ab", 1), tensor.ErrUnsupported, `"b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := DefineSentencePiece([]byte(c.file))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}
