package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/pipeline/source"
)

func TestWrite(t *testing.T) {
	copied := filepath.Join("..", "..", "pipeline", "arch", "testdata", "llama") // 320 ids, fewer than rows
	for name, tokenizer := range map[string]string{"made up": "", "copied": copied} {
		t.Run(name, func(t *testing.T) {
			dir, gguf := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "model.gguf")
			if err := write(options{shape: "llama-tiny", out: dir, tokenizer: tokenizer, gguf: gguf, seed: 1}); err != nil {
				t.Fatal(err)
			}
			src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
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
			if err := write(options{shape: "llama-tiny", out: dir}); err == nil {
				t.Error("wrote to a directory that is not empty")
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := write(options{shape: "llama-9t", out: dir}); err == nil {
		t.Error("an unknown shape was written")
	}
	if err := write(options{shape: "llama-tiny", out: dir, tokenizer: filepath.Join(dir, "nowhere")}); err == nil {
		t.Error("a tokenizer that is not there was copied")
	}
	if _, err := madeUpTokenizer(256); err == nil {
		t.Error("a vocabulary without special tokens was made up")
	}
	if there, err := os.ReadDir(dir); err != nil || len(there) > 0 {
		t.Errorf("left behind: %v, %v", there, err)
	}
}

// The file ends where the last tensor of its header ends, and norms are float32.
func TestGGUF(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	s := shapes["llama-tiny"]
	config, err := configOf(&options{shape: "llama-tiny"})
	if err != nil {
		t.Fatal(err)
	}
	src, err := checkpoint.New(config, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeGGUF(path, "tiny", s, src); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := ggufHead("tiny", s, src.Tensors())
	if len(head)%ggufAlign != 0 || !bytes.HasPrefix(b, head) || !bytes.HasPrefix(b, []byte("GGUF\x03\x00\x00\x00")) {
		t.Fatal("the header is not in front")
	}
	rest := b[len(head):]
	for _, info := range src.Tensors() {
		for _, want := range []string{"blk.0.attn_norm.weight", "blk.1.ffn_norm.weight", "blk.1.attn_output.weight", "token_embd.weight", "output_norm.weight"} {
			if !bytes.Contains(head, []byte(want)) {
				t.Fatalf("no tensor %s", want)
			}
		}
		size := info.Size
		if len(info.Shape) == 1 {
			size *= 2
			if v := math.Float32frombits(binary.LittleEndian.Uint32(rest)); v != 1 {
				t.Errorf("%s begins with %v", info.Name, v)
			}
		}
		rest = rest[aligned(size):]
	}
	if len(rest) != 0 {
		t.Errorf("%d bytes too many", len(rest))
	}
	if err := writeGGUF(path, "tiny", s, src); err == nil {
		t.Error("a file was overwritten")
	}
}

// TestWriteSeeing: a shape with a tower is a checkpoint whose tensors are all used.
func TestWriteSeeing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	if err := write(options{shape: "siglip-tiny", out: dir, seed: 1}); err != nil {
		t.Fatal(err)
	}
	src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if n := len(src.Model.Towers); n != 1 || len(src.Model.Towers[0].Layers) != 2 {
		t.Errorf("%d towers", n)
	}
	if err := write(options{shape: "siglip-tiny", out: filepath.Join(t.TempDir(), "out"), layers: 3}); err == nil {
		t.Error("a tower with other layers was written")
	}
}
