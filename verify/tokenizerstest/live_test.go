//go:build tokenizers

package tokenizerstest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/parity"
)

// TestLive holds the small tokenizers to the library itself, which tells the strings that differ; with -record it
// writes what TestShipped wants.
func TestLive(t *testing.T) {
	list := readShipped(t)
	complete := true
	for _, v := range list.Tokenizers {
		ran := false
		t.Run(v.Name, func(t *testing.T) {
			ran = true
			b := v.file(t)
			path := filepath.Join(t.TempDir(), "tokenizer.json")
			if err := os.WriteFile(path, b, 0o666); err != nil {
				t.Fatal(err)
			}
			rows, release := library(t, path)
			s := newSum()
			for _, r := range rows {
				s.add(r)
			}
			s.endBlock()
			if *record {
				list.Library, v.digests, v.Blocks = release, s.digests(), hex.EncodeToString(s.blocks)
				return
			}
			if v.digests != s.digests() || v.Blocks != hex.EncodeToString(s.blocks) {
				t.Errorf("the library gives other digests than are recorded: run make reference")
			}
			tok, err := tokenizer.Load(b)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, tok, rows, runtime.GOMAXPROCS(0))
		})
		complete = complete && ran
	}
	if *record && complete {
		list.Corpus = parity.SHA256
		write(t, shippedFile, list)
	}
}
