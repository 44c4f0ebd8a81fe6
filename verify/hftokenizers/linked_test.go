//go:build hf_tokenizers && cgo

package hftokenizers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/parity"
)

// TestLinked compares ours with the library on the corpus, for the small tokenizers of the repository and those below
// LLMEXPORT_TOKENIZERS that are wanted by name there.
func TestLinked(t *testing.T) {
	paths, err := filepath.Glob("../../runtime/tokenizer/testdata/*.tokenizer.json")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d tokenizers: %v", len(paths), err)
	}
	if dir := os.Getenv("LLMEXPORT_TOKENIZERS"); dir != "" {
		for _, name := range []string{"qwen3", "llama3"} {
			for _, sub := range []string{"", "models"} {
				if p := filepath.Join(dir, name, sub, "tokenizer.json"); exists(p) {
					paths = append(paths, p)
				}
			}
		}
	}
	var list []parity.String
	for _, s := range parity.Corpus() {
		if Takes(s.Text) {
			list = append(list, s)
		}
	}
	for _, p := range paths {
		t.Run(p, func(t *testing.T) {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			lib, err := Open(b)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := tokenizer.Load(b)
			if err != nil {
				t.Fatal(err)
			}
			for _, special := range []bool{false, true} {
				r := parity.Compare(func(s string) []int32 { return lib.Encode(s, special) }, func(s string) []int32 { return ours.Encode(s, special) }, list, 2)
				if r.Plain.Different+r.Hard.Different > 0 {
					t.Errorf("special %v: %v plain, %v hard, first %+q", special, r.Plain, r.Hard, r.First[0].String.Text)
				}
			}
		})
	}
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

func TestOpenRefuses(t *testing.T) {
	for _, text := range []string{"", "{}", "[1,2", strings.Repeat("[", 10000)} {
		if tok, err := Open([]byte(text)); tok != nil || err == nil || !errors.Is(err, tensor.ErrUnsupported) && !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%.20q: %v, %v", text, tok, err)
		}
	}
}
