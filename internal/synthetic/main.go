// Program synthetic writes a checkpoint of random weights in the shape of a published model, to measure speed where no
// weights are at hand: go run ./internal/synthetic -shape llama-135m -out DIR.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/pipeline/safetensors"
)

func main() {
	var (
		name      = flag.String("shape", "llama-135m", "shape of the model: "+strings.Join(slices.Sorted(maps.Keys(shapes)), ", "))
		out       = flag.String("out", "", "directory to write; it must be empty or missing")
		tokenizer = flag.String("tokenizer", "", "directory of a checkpoint whose tokenizer to copy (default: one of made-up merges)")
		gguf      = flag.String("gguf", "", "file to write the same weights to for llama.cpp, without a tokenizer")
		seed      = flag.Uint64("seed", 1, "seed of the weights")
	)
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*name, *out, *tokenizer, *gguf, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "synthetic:", err)
		os.Exit(1)
	}
}

// shape is what config.json says of a model of the llama family. Embeddings are tied.
type shape struct {
	hidden, intermediate, layers, heads, kvHeads, headDim, vocab, positions int
}

var shapes = map[string]shape{
	"llama-135m": {hidden: 576, intermediate: 1536, layers: 30, heads: 9, kvHeads: 3, headDim: 64, vocab: 49152, positions: 8192}, // SmolLM2-135M
	"llama-tiny": {hidden: 64, intermediate: 128, layers: 2, heads: 4, kvHeads: 2, headDim: 16, vocab: 512, positions: 512},
}

// ropeTheta and normEps are those of all shapes.
const (
	ropeTheta = 100000
	normEps   = 1e-5
)

// config is config.json; the ids of tokens are those of the made-up tokenizer, unless another one is copied.
func (s shape) config(copied bool) ([]byte, error) {
	c := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "torch_dtype": "bfloat16",
		"hidden_size": s.hidden, "intermediate_size": s.intermediate, "num_hidden_layers": s.layers, "vocab_size": s.vocab,
		"num_attention_heads": s.heads, "num_key_value_heads": s.kvHeads, "head_dim": s.headDim,
		"max_position_embeddings": s.positions, "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
		"hidden_act": "silu", "rms_norm_eps": normEps, "rope_theta": ropeTheta, "initializer_range": 0.02,
	}
	if !copied {
		c["bos_token_id"], c["eos_token_id"] = s.vocab-len(specials), s.vocab-1
	}
	return json.MarshalIndent(c, "", "  ")
}

func write(name, out, tokenizer, gguf string, seed uint64) error {
	s, ok := shapes[name]
	if !ok {
		return fmt.Errorf("there is no shape %q, only %s", name, strings.Join(slices.Sorted(maps.Keys(shapes)), ", "))
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return err
	}
	switch there, err := os.ReadDir(out); {
	case err != nil:
		return err
	case len(there) > 0:
		return fmt.Errorf("%s is not empty", out)
	}
	config, err := s.config(tokenizer != "")
	if err != nil {
		return err
	}
	if err := writeTokenizer(out, tokenizer, s.vocab); err != nil {
		return err
	}
	src, err := checkpoint.New(config, seed)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(out, "model.safetensors"))
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	err = safetensors.Write(b, src.Tensors(), func(name string) (io.Reader, error) { return src.Open(name) })
	if err = errors.Join(err, b.Flush(), f.Close()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "config.json"), append(config, '\n'), 0o666); err != nil || gguf == "" {
		return err
	}
	return writeGGUF(gguf, name, s, src)
}

// writeTokenizer copies the tokenizer of another checkpoint, or makes one up.
func writeTokenizer(out, from string, vocab int) error {
	if from == "" {
		files, err := madeUpTokenizer(vocab)
		for name, b := range files {
			err = errors.Join(err, os.WriteFile(filepath.Join(out, name), b, 0o666))
		}
		return err
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) && name != "tokenizer.json" {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}
