package tokenizer

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// golden is what the Python library gave for one tokenizer; see testdata/golden.py.
type golden struct {
	Base    string
	Parts   map[string]json.RawMessage
	Vocab   int
	Decode  [][3]any // ids, text, text without special tokens
	IDs     []string // digest of the ids of each text
	Special string   // digest of all ids with special tokens
	Text    string   // digest of all texts, encoded and decoded
}

func mustLoad(t testing.TB, b []byte) *Tokenizer {
	t.Helper()
	tok, err := Load(b)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestGolden compares the ids of every text under every tokenizer with those of the Python library.
func TestGolden(t *testing.T) {
	texts := tokenizertest.Corpus(t)
	var all map[string]golden
	tokenizertest.ReadJSON(t, "ids.json", &all)
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if testing.Short() && i%2 != 0 {
			continue
		}
		g := all[name]
		t.Run(name, func(t *testing.T) {
			tok := mustLoad(t, tokenizertest.Patched(t, tokenizertest.Fixture(t, g.Base), g.Parts))
			if tok.VocabSize() != g.Vocab {
				t.Errorf("vocabulary of %d, want %d", tok.VocabSize(), g.Vocab)
			}
			var special, decoded []string
			bad := 0
			for i, s := range texts {
				ids := tok.Encode(s, false)
				decoded = append(decoded, tok.Decode(ids, false))
				special = append(special, tokenizertest.JoinIDs(tok.Encode(s, true)))
				if tokenizertest.Digest(tokenizertest.JoinIDs(ids)) == g.IDs[i] {
					continue
				}
				if bad++; bad <= 3 {
					t.Errorf("text %d, %.60q: ids %v differ (golden.py show %s %d)", i, s, ids[:min(len(ids), 40)], name, i)
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d texts differ", bad, len(texts))
			}
			if tokenizertest.Digest(strings.Join(special, ";")) != g.Special {
				t.Error("ids with special tokens differ")
			}
			if tokenizertest.Digest(strings.Join(decoded, "\x00")) != g.Text {
				t.Error("decoded texts differ")
			}
			for _, d := range g.Decode {
				var ids []int32
				for _, v := range d[0].([]any) {
					ids = append(ids, int32(v.(float64)))
				}
				for skip, want := range map[bool]any{false: d[1], true: d[2]} {
					if got := tok.Decode(ids, skip); got != want {
						t.Errorf("Decode(%v, %v) = %q, want %q", ids, skip, got, want)
					}
				}
			}
		})
	}
}

// TestConcurrent encodes with one tokenizer from several goroutines; the race detector is the judge.
func TestConcurrent(t *testing.T) {
	tok := mustLoad(t, tokenizertest.Fixture(t, "llama3"))
	texts := tokenizertest.Corpus(t)[:300]
	done := make(chan bool)
	for range 4 {
		go func() {
			ok := true
			for range 3 {
				for _, s := range texts {
					ok = ok && slices.Equal(tok.Encode(s, true), append(tok.PrefixIDs(), tok.Encode(s, false)...))
				}
			}
			done <- ok
		}()
	}
	for range 4 {
		if !<-done {
			t.Error("ids differ between calls")
		}
	}
}
