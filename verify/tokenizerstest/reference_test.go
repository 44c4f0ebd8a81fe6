//go:build tokenizers

package tokenizerstest

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
