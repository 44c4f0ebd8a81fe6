//go:build tokenizers

package tokenizerstest

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer/parity"
)

const (
	root          = "../.."
	referenceFile = "testdata/reference.json"
)

// reference is what the library gave; "make reference" records it.
type reference struct {
	// Library is the release of the library, Corpus the SHA-256 of the corpus, Strings the number of its strings.
	Library    string   `json:"library"`
	Corpus     string   `json:"corpus"`
	Strings    int      `json:"strings"`
	Tokenizers []*entry `json:"tokenizers"`
}

// entry is a tokenizer.json of a model, where it is from, and digests of what the library makes of the corpus.
type entry struct {
	Name   string `json:"name"`
	NPM    string `json:"npm,omitempty"`
	Git    string `json:"git,omitempty"`
	Commit string `json:"commit,omitempty"`
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
	digests
}

// digests are SHA-256. Ids are written in decimal, joined by commas, and end with a line feed; texts are UTF-8 and end
// with the byte FF.
type digests struct {
	// IDs are without special tokens, Special with them.
	IDs     string `json:"ids"`
	Special string `json:"special"`
	// Kept is what the ids with special tokens decode to, Skipped is without the special tokens.
	Kept    string `json:"kept"`
	Skipped string `json:"skipped"`
}

// row is what the library makes of a string.
type row struct {
	ids, special  []int32
	kept, skipped string
}

func (r *row) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&r.ids, &r.special, &r.kept, &r.skipped})
}

// sum computes digests row by row.
type sum struct {
	ids, special, kept, skipped hash.Hash
	buf                         []byte
}

func newSum() *sum {
	return &sum{ids: sha256.New(), special: sha256.New(), kept: sha256.New(), skipped: sha256.New()}
}

func (s *sum) add(r row) {
	number := func(h hash.Hash, ids []int32) {
		s.buf = s.buf[:0]
		for i, id := range ids {
			if i > 0 {
				s.buf = append(s.buf, ',')
			}
			s.buf = strconv.AppendInt(s.buf, int64(id), 10)
		}
		h.Write(append(s.buf, '\n'))
	}
	number(s.ids, r.ids)
	number(s.special, r.special)
	s.kept.Write(append([]byte(r.kept), 0xFF))
	s.skipped.Write(append([]byte(r.skipped), 0xFF))
}

func (s *sum) digests() digests {
	text := func(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
	return digests{text(s.ids), text(s.special), text(s.kept), text(s.skipped)}
}

func readReference(t *testing.T) *reference {
	t.Helper()
	b, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// path finds the tokenizer.json of an entry and holds it to its SHA-256.
func (e *entry) path(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("LLMEXPORT_TOKENIZERS")
	if dir == "" {
		dir = filepath.Join(root, ".venv", "tokenizer-files")
	}
	for _, p := range []string{filepath.Join(dir, e.Name, "tokenizer.json"), filepath.Join(dir, e.Name, "models", "tokenizer.json")} {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		if s := sha256.Sum256(b); hex.EncodeToString(s[:]) != e.SHA256 {
			t.Fatalf("%s has SHA-256 %x, want %s", p, s, e.SHA256)
		}
		return p
	}
	t.Fatalf("%s has no %s: run make tokenizers", dir, e.Name)
	return ""
}

// library runs the library on the corpus. It returns a row for every string and the library's release.
func library(t *testing.T, path string) ([]row, string) {
	t.Helper()
	python := os.Getenv("LLMEXPORT_TOKENIZERS_PYTHON")
	if python == "" {
		python = filepath.Join(root, ".venv", "tokenizers", "bin", "python")
	}
	cmd := exec.Command(python, "library.py", filepath.Join(root, "runtime", "tokenizer", "parity", "corpus.jsonl.gz"), path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	release, rows := "", make([]row, len(parity.Corpus()))
	d := json.NewDecoder(bufio.NewReaderSize(out, 1<<16))
	err = d.Decode(&release)
	for i := 0; i < len(rows) && err == nil; i++ {
		err = d.Decode(&rows[i])
	}
	if err != nil {
		err = fmt.Errorf("library.py: %w", err)
		_ = cmd.Process.Kill()
	}
	if e := cmd.Wait(); err == nil {
		err = e
	}
	if err != nil {
		t.Fatal(err)
	}
	return rows, release
}
