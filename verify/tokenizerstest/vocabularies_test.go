//go:build tokenizers

package tokenizerstest

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/tokenizer/repository"
)

// TestVocabularies holds published files of SentencePiece and tekken to what their libraries gave; see vocabularies.py.
func TestVocabularies(t *testing.T) {
	dir := os.Getenv("LLMEXPORT_TOKENIZERS")
	if dir == "" {
		t.Skip("LLMEXPORT_TOKENIZERS names no directory")
	}
	var want map[string]string
	var golden struct{ Texts []string }
	for name, to := range map[string]any{
		"testdata/vocabularies.json": &want, "../../runtime/tokenizer/testdata/sentencepiece/goldens.json": &golden,
	} {
		b, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(b, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || want[e.Name()] == "" {
			return err
		}
		found++
		t.Run(e.Name(), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			define := repository.DefineSentencePiece
			if filepath.Ext(path) == ".json" {
				define = new(repository.Config).Tekken
			}
			d, err := define(b)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := d.Tokenizer()
			if err != nil {
				t.Fatal(err)
			}
			h := digest.New()
			for _, text := range golden.Texts {
				var line []byte
				for i, id := range tok.Encode(text, false) {
					if i > 0 {
						line = append(line, ',')
					}
					line = strconv.AppendInt(line, int64(id), 10)
				}
				h.Write(append(line, '\n'))
			}
			if got := h.Hex(); got != want[e.Name()] {
				t.Errorf("other ids than the library's: %s", got)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Skip("none of the files is in LLMEXPORT_TOKENIZERS")
	}
}
