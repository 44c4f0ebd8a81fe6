package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage"
)

func TestWrite(t *testing.T) {
	copied := filepath.Join("..", "..", "pipeline", "arch", "testdata", "llama") // 320 ids, fewer than rows
	for name, tokenizer := range map[string]string{"made up": "", "copied": copied} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			if err := write("llama-tiny", dir, tokenizer, 1); err != nil {
				t.Fatal(err)
			}
			src, err := stage.OpenSource(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			s := shapes["llama-tiny"]
			if d := src.Decoder; d.Hidden != s.hidden || d.Vocab != s.vocab || len(d.Layers) != s.layers || !d.Tied {
				t.Errorf("%+v", d)
			}
			n := src.Tokenizer.VocabSize()
			if tokenizer == "" && n != s.vocab || n > s.vocab {
				t.Errorf("%d ids for %d rows", n, s.vocab)
			}
			const text = "Hello, wörld 12\n"
			if got := src.Tokenizer.Decode(src.Tokenizer.Encode(text, false), false); got != text {
				t.Errorf("decoded %q, want %q", got, text)
			}
			if len(src.Facts.Stop) == 0 {
				t.Error("nothing ends a text")
			}
			if err := write("llama-tiny", dir, "", 1); err == nil {
				t.Error("wrote to a directory that is not empty")
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := write("llama-9t", dir, "", 1); err == nil {
		t.Error("an unknown shape was written")
	}
	if err := write("llama-tiny", dir, filepath.Join(dir, "nowhere"), 1); err == nil {
		t.Error("a tokenizer that is not there was copied")
	}
	if _, err := madeUpTokenizer(256); err == nil {
		t.Error("a vocabulary without special tokens was made up")
	}
	if there, err := os.ReadDir(dir); err != nil || len(there) > 0 {
		t.Errorf("left behind: %v, %v", there, err)
	}
}
