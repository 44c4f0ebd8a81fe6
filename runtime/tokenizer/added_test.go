package tokenizer

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// addedGolden is what the Python library gave for a list of added tokens; see testdata/added.py.
type addedGolden struct {
	Parts map[string]json.RawMessage
	// Texts are a text, its ids, and these decoded with and without special tokens.
	Texts []struct {
		Text          string
		IDs           []int32
		Decoded, Bare string
	}
}

// TestAddedTokens compares how added tokens are numbered, found and decoded.
func TestAddedTokens(t *testing.T) {
	var all map[string]addedGolden
	tokenizertest.ReadJSON(t, "added.json", &all)
	if len(all) < 20 {
		t.Fatalf("%d lists", len(all))
	}
	for name, g := range all {
		t.Run(name, func(t *testing.T) {
			tok := mustLoad(t, tokenizertest.Patched(t, []byte(tokenizertest.Small), g.Parts))
			for _, c := range g.Texts {
				ids := tok.Encode(c.Text, false)
				if !slices.Equal(ids, c.IDs) {
					t.Errorf("%q: %v, want %v", c.Text, ids, c.IDs)
				}
				if got := tok.Decode(c.IDs, false); got != c.Decoded {
					t.Errorf("%v became %q, want %q", c.IDs, got, c.Decoded)
				}
				if got := tok.Decode(c.IDs, true); got != c.Bare {
					t.Errorf("%v became %q without special tokens, want %q", c.IDs, got, c.Bare)
				}
			}
		})
	}
}

func addedJSON(t testing.TB, list ...AddedToken) map[string]json.RawMessage {
	t.Helper()
	out := make([]map[string]any, len(list))
	for i, a := range list {
		out[i] = map[string]any{"id": a.ID, "content": a.Content, "special": a.Special, "lstrip": a.LStrip, "rstrip": a.RStrip,
			"single_word": a.SingleWord, "normalized": a.Normalized}
	}
	b, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]json.RawMessage{"added_tokens": b}
}

func TestAddedTokensRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		normalizer string
		list       []AddedToken
		is         error
		want       string
	}{
		"a gap":               {`null`, []AddedToken{{ID: 4, Content: "<x>"}}, tensor.ErrUnsupported, "with id 4 where 3 is next"},
		"an order":            {`null`, []AddedToken{{ID: 4, Content: "<x>"}, {ID: 3, Content: "<y>"}}, tensor.ErrUnsupported, "3 is next"},
		"two ids":             {`null`, []AddedToken{{ID: 3, Content: "<x>"}, {ID: 4, Content: "<x>"}}, tensor.ErrCorrupt, "ids 4 and 3"},
		"not the vocabulary":  {`null`, []AddedToken{{ID: 3, Content: "a"}}, tensor.ErrCorrupt, "but 0 in the vocabulary"},
		"equal normalized":    {`{"type":"Lowercase"}`, []AddedToken{{ID: 3, Content: "<x>", Normalized: true}, {ID: 4, Content: "<X>", Normalized: true}}, tensor.ErrUnsupported, `both "<x>"`},
		"normalized away":     {`{"type":"Strip","strip_left":true,"strip_right":true}`, []AddedToken{{ID: 3, Content: " ", Normalized: true}}, tensor.ErrUnsupported, "empty when normalized"},
		"too long":            {`null`, []AddedToken{{ID: 3, Content: strings.Repeat("x", 513)}}, tensor.ErrUnsupported, "513 bytes"},
		"too long normalized": {`{"type":"ByteLevel"}`, []AddedToken{{ID: 3, Content: strings.Repeat("\n", 300), Normalized: true}}, tensor.ErrUnsupported, "600 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			parts := addedJSON(t, c.list...)
			parts["normalizer"] = json.RawMessage(c.normalizer)
			if _, err := Load(tokenizertest.Patched(t, []byte(tokenizertest.Small), parts)); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestAddedTokenSwallowed: a token with lstrip in white space that the one before swallowed is none, as the library has it where it
// does not panic.
func TestAddedTokenSwallowed(t *testing.T) {
	tok := mustLoad(t, tokenizertest.Patched(t, []byte(tokenizertest.Small), addedJSON(t, AddedToken{ID: 3, Content: "<x>", RStrip: true},
		AddedToken{ID: 4, Content: "\n", LStrip: true}, AddedToken{ID: 5, Content: "\t", LStrip: true, RStrip: true}, AddedToken{ID: 6, Content: "\r"})))
	for text, want := range map[string][]int32{
		"<x>\na":    {3, 0},
		"<x> \na":   {3, 0},
		"<x>a \nb":  {3, 0, 4, 1},
		"a\t\tb":    {0, 5, 1},
		"a \t\t b":  {0, 5, 1},
		"<x>\ra":    {3, 6, 0},
		"<x>\n\na":  {3, 0},    // the library panics
		"<x>\n a\n": {3, 0, 4}, // the library panics
	} {
		if ids := tok.Encode(text, false); !slices.Equal(ids, want) {
			t.Errorf("%q: %v, want %v", text, ids, want)
		}
	}
}

// TestLoadOptions adds tokens behind those of the file, as the library's add_tokens numbers them.
func TestLoadOptions(t *testing.T) {
	file := tokenizertest.Patched(t, []byte(tokenizertest.Small), addedJSON(t, AddedToken{ID: 3, Content: "<x>", Special: true}))
	tok, err := LoadWith(file, LoadOptions{Added: []AddedToken{{ID: -1, Content: "<y>"}, {ID: 3, Content: "<x>", LStrip: true},
		{ID: 5, Content: "<z>"}, {ID: -1, Content: "ab"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.Encode("a <x><y><z>ab", false), []int32{0, 3, 4, 5, 2}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := tok.Decode([]int32{0, 3, 4}, true); got != "a<y>" {
		t.Errorf("a token that was special decodes to %q", got)
	}
	if _, err := LoadWith(file, LoadOptions{Added: []AddedToken{{ID: 9, Content: "<y>"}}}); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("an id that does not follow: %v", err)
	}
}

// TestAddedTokensHostile bounds the time for 6,415 tokens and texts that begin one at every byte.
func TestAddedTokensHostile(t *testing.T) {
	const size, limit = 1 << 20, 10 * time.Second // a hundred times what it takes
	list := []AddedToken{{ID: 3, Content: "\n", LStrip: true, RStrip: true}, {ID: 4, Content: "<<<<<<<<x", SingleWord: true}}
	for i := len(list); i < 6415; i++ {
		list = append(list, AddedToken{ID: int32(3 + i), Content: "<unused" + strings.Repeat("9", i%7) + string(rune('A'+i)) + ">"})
	}
	tok := mustLoad(t, tokenizertest.Patched(t, []byte(tokenizertest.Small), addedJSON(t, list...)))
	for _, unit := range []string{"<", "<unused", "\n", " \n ", "<unused9", "<<<<<<<<x", " "} {
		text := strings.Repeat(unit, size/len(unit))
		if took := tokenizertest.Took(func() { tok.Encode(text, false) }); took > limit {
			t.Errorf("%q took %v", unit, took)
		}
	}
}
