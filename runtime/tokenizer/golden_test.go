package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
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

func readJSON(t testing.TB, name string, v any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

func corpus(t testing.TB) (texts []string) {
	t.Helper()
	readJSON(t, "corpus.json", &texts)
	if len(texts) < 2000 {
		t.Fatalf("%d texts in the corpus", len(texts))
	}
	return texts
}

// fixture is a tokenizer.json of testdata, or that of tiny-qwen3.
func fixture(t testing.TB, base string) []byte {
	t.Helper()
	path := filepath.Join("testdata", base+".tokenizer.json")
	if base == "tiny-qwen3" {
		path = filepath.Join("..", "..", "testdata", base, "tokenizer.json")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// patched replaces top-level parts of a tokenizer.json.
func patched(t testing.TB, base []byte, parts map[string]json.RawMessage) []byte {
	t.Helper()
	var file map[string]json.RawMessage
	if err := json.Unmarshal(base, &file); err != nil {
		t.Fatal(err)
	}
	for k, v := range parts {
		file[k] = v
	}
	b, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustLoad(t testing.TB, b []byte) *Tokenizer {
	t.Helper()
	tok, err := Load(b)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func joinIDs(ids []int32) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(id)))
	}
	return b.String()
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// TestGolden compares the ids of every text under every tokenizer with those of the Python library.
func TestGolden(t *testing.T) {
	texts := corpus(t)
	var all map[string]golden
	readJSON(t, "ids.json", &all)
	for name, g := range all {
		t.Run(name, func(t *testing.T) {
			tok := mustLoad(t, patched(t, fixture(t, g.Base), g.Parts))
			if tok.VocabSize() != g.Vocab {
				t.Errorf("vocabulary of %d, want %d", tok.VocabSize(), g.Vocab)
			}
			var special, decoded []string
			bad := 0
			for i, s := range texts {
				ids := tok.Encode(s, false)
				decoded = append(decoded, tok.Decode(ids, false))
				special = append(special, joinIDs(tok.Encode(s, true)))
				if digest(joinIDs(ids)) == g.IDs[i] {
					continue
				}
				if bad++; bad <= 3 {
					t.Errorf("text %d, %.60q: ids %v differ (golden.py show %s %d)", i, s, ids[:min(len(ids), 40)], name, i)
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d texts differ", bad, len(texts))
			}
			if digest(strings.Join(special, ";")) != g.Special {
				t.Error("ids with special tokens differ")
			}
			if digest(strings.Join(decoded, "\x00")) != g.Text {
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
	tok := mustLoad(t, fixture(t, "llama3"))
	texts := corpus(t)[:300]
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
