package tokenizerstest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/parity"
)

const shippedFile = "testdata/shipped.json"

// shipped is what the library gave for small tokenizers, which lie in the repository, with parts of them replaced: the
// kinds of normalizers, pre-tokenizers, models and decoders that models have. "make reference" records it.
type shipped struct {
	Library    string     `json:"library"`
	Corpus     string     `json:"corpus"`
	Tokenizers []*variant `json:"tokenizers"`
}

// variant is a small tokenizer.
type variant struct {
	Name string `json:"name"`
	// Base is a tokenizer of testdata, here or of runtime/tokenizer; Parts replace its top-level keys.
	Base  string                     `json:"base"`
	Parts map[string]json.RawMessage `json:"parts,omitempty"`
	digests
	// Blocks are those of sum, in hexadecimal.
	Blocks string `json:"blocks"`
}

func readShipped(t *testing.T) *shipped {
	t.Helper()
	b, err := os.ReadFile(shippedFile)
	if err != nil {
		t.Fatal(err)
	}
	var s shipped
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// file is the variant's tokenizer.json.
func (v *variant) file(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", v.Base+".tokenizer.json"))
	if err != nil {
		b, err = os.ReadFile(filepath.Join("..", "..", "runtime", "tokenizer", "testdata", v.Base+".tokenizer.json"))
	}
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		t.Fatal(err)
	}
	for k, p := range v.Parts {
		parts[k] = p
	}
	if b, err = json.Marshal(parts); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestShipped holds small tokenizers to what the library gave for the whole corpus.
func TestShipped(t *testing.T) {
	list := readShipped(t)
	if list.Corpus != parity.SHA256 || len(list.Tokenizers) < 12 {
		t.Fatalf("%s has %d tokenizers on corpus %s, the corpus is %s: run make reference", shippedFile, len(list.Tokenizers), list.Corpus, parity.SHA256)
	}
	for i, v := range list.Tokenizers {
		if testing.Short() && i%12 != 0 {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			tok, err := tokenizer.Load(v.file(t))
			if err != nil {
				t.Fatal(err)
			}
			want, err := hex.DecodeString(v.Blocks)
			if err != nil {
				t.Fatal(err)
			}
			s := ours(tok)
			got := s.digests()
			if got == v.digests {
				return
			}
			t.Errorf("same ids %v, with special tokens %v, decoded %v, decoded without special tokens %v",
				got.IDs == v.IDs, got.Special == v.Special, got.Kept == v.Kept, got.Skipped == v.Skipped)
			if len(want) != len(s.blocks) {
				t.Fatalf("%d bytes of blocks, want %d", len(s.blocks), len(want))
			}
			shown := 0
			for i := 0; i < len(want) && shown < 10; i += 4 {
				if !bytes.Equal(want[i:i+4], s.blocks[i:i+4]) {
					from := i / 4 * blockRows
					to := min(from+blockRows, len(parity.Corpus()))
					t.Logf("ids differ in strings %d to %d, %s to %s", from, to-1, parity.Corpus()[from].Class, parity.Corpus()[to-1].Class)
					shown++
				}
			}
		})
	}
}

// ours is what we make of the whole corpus.
func ours(tok *tokenizer.Tokenizer) *sum {
	s := newSum()
	for _, str := range parity.Corpus() {
		r := row{ids: tok.Encode(str.Text, false), special: tok.Encode(str.Text, true)}
		r.kept, r.skipped = tok.Decode(r.special, false), tok.Decode(r.special, true)
		s.add(r)
	}
	s.endBlock()
	return s
}
