package runtime

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// configSeeds are configurations of both forms of tie_embeddings, good and damaged.
var configSeeds = []string{
	`{}`,
	`{"hidden_size":64,"attention_mask":"float","tie_embeddings":[64,576,32,8,32]}`,
	`{"hidden_size":64,"attention_mask":"float","tie_embeddings":[64,576,64,8,32,1]}`,
	`{"hidden_size":64,"attention_mask":"float","tie_embeddings":{"weight_offset":64,"alpha_offset":320,"alpha_size":64,"quant_bit":4,"quant_block":32,"alpha_dtype":"fp16"}}`,
	`{"hidden_size":64,"attention_mask":"float","tie_embeddings":{"weight_offset":64,"alpha_offset":1088,"quant_bit":16}}`,
	`{"hidden_size":3,"attention_mask":"float","tie_embeddings":[1,2,4,4,1]}`,
	`{"hidden_size":1048576,"attention_mask":"float","tie_embeddings":[-1,9223372036854775807,4,8,0]}`,
	`{"hidden_size":2,"attention_mask":"float","tie_embeddings":null}`,
	`{"jinja":{"chat_template":"{{ x }}"},"temperature":1e300,"mixed_samplers":["topK"]}`,
}

// FuzzConfig feeds a configuration to everything that reads one: nothing panics, and a table that opens has rows.
func FuzzConfig(f *testing.F) {
	if len(configSeeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range configSeeds {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "embeddings_bf16.bin"), make([]byte, 96), 0o666); err != nil {
		f.Fatal(err)
	}
	w := &weights{b: make([]byte, 1<<12)}
	for i := range w.b {
		w.b[i] = byte(i * 7)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Config{AttentionType: "full", EmbeddingFile: "embeddings_bf16.bin"}
		if decode("config.json", b, c) != nil || c.check() != nil {
			return
		}
		c.Sampler()
		c.EmbeddingFile = "embeddings_bf16.bin"
		e, err := openEmbedding(dir, c, w)
		if err != nil {
			if e != nil {
				t.Fatal("a table and an error")
			}
			return
		}
		defer e.close()
		if e.vocab <= 0 {
			t.Fatalf("a table of %d rows", e.vocab)
		}
		for _, id := range []int32{0, int32(e.vocab - 1)} {
			if rows, err := e.rows(nil, []int32{id}, false); err != nil || len(rows) != c.HiddenSize {
				t.Fatalf("row %d: %d numbers, %v", id, len(rows), err)
			}
		}
		if _, err := e.rows(nil, []int32{int32(e.vocab)}, false); err == nil {
			t.Fatal("a row behind the last")
		}
	})
}

// Blocks of an odd number of 4-bit codes share bytes, which no engine lays out.
func TestOddBlocks(t *testing.T) {
	for _, raw := range []string{`[1,3,12,4,3]`, `[1,3,48,4,1]`} {
		tie, err := parseTie(json.RawMessage(raw))
		if err != nil {
			t.Fatal(err)
		}
		e := &embedding{hidden: 3}
		if err := e.openTable(tie, &weights{b: make([]byte, 64)}); err == nil {
			t.Errorf("%s opens as %d rows in blocks of %d", raw, e.vocab, e.block)
		}
	}
}

// What follows the object, a stray bracket too, and what is nested without end are no configuration.
func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{`{}}`, `{}]`, `{} {}`, `{},`, ``, `{"jinja":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`} {
		if err := decode("config.json", []byte(text), &Config{}); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := decode("config.json", []byte(" {} \n"), &Config{}); err != nil {
		t.Error(err)
	}
}

func TestWindow(t *testing.T) {
	for text, want := range map[string]int{
		`{"attention_type":"mix","sliding_window":512}`:  512,
		`{"attention_type":"full","sliding_window":512}`: 0,
		`{}`: 0,
	} {
		c := &Config{AttentionType: "full", AttentionMask: "float", HiddenSize: 8}
		if err := decode("llm_config.json", []byte(text), c); err != nil || c.check() != nil || c.window() != want {
			t.Errorf("%s: window %d, %v, %v", text, c.window(), err, c.check())
		}
	}
}
