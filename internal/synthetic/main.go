// Program synthetic writes a checkpoint of random weights in the shape of a published model, to measure speed where no
// weights are available: go run ./internal/synthetic -shape llama-135m -out DIR. With -holes only its headers take disk, so that
// models of any size can be planned, and what zeros are enough for can be tried.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/internal/synthetic/shard"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func main() {
	var o options
	flag.StringVar(&o.shape, "shape", "llama-135m", "shape of the model: "+names())
	flag.StringVar(&o.out, "out", "", "directory to write; it must be empty or missing")
	flag.StringVar(&o.tokenizer, "tokenizer", "", "directory of a checkpoint whose tokenizer to copy (default: one of made-up merges)")
	flag.StringVar(&o.gguf, "gguf", "", "file to write the same weights to for llama.cpp, without a tokenizer; of a llama shape")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the weights")
	flag.IntVar(&o.layers, "layers", 0, "number of layers (default: that of the shape)")
	flag.IntVar(&o.vocab, "vocab", 0, "number of tokens (default: that of the shape)")
	flag.IntVar(&o.experts, "experts", 0, "number of experts of a layer of qwen3 (default: that of the shape)")
	flag.BoolVar(&o.stacked, "stacked", false, "experts of a layer as two BF16 tensors of three dimensions; implies -floats")
	flag.BoolVar(&o.floats, "floats", false, "BF16 where the shape is one of fp8 or mxfp4")
	flag.BoolVar(&o.holes, "holes", false, "headers only: shards whose weights are holes of the file system, and read as zeros")
	flag.Parse()
	if o.out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(o); err != nil {
		fmt.Fprintln(os.Stderr, "synthetic:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	shape, out, tokenizer, gguf string
	seed                        uint64
	layers, vocab, experts      int
	stacked, floats, holes      bool
}

// holeBytes is the size of a shard with holes, shardBytes that of one with weights, which is what transformers writes.
const holeBytes, shardBytes = 16 << 30, 5e9

func write(o options) error {
	s, llama := shapes[o.shape]
	if o.gguf != "" && (!llama || o.layers != 0 || o.vocab != 0 || o.holes) {
		return errors.New("-gguf goes with a whole llama shape")
	}
	config, err := configOf(&o)
	if err != nil {
		return err
	}
	source := checkpoint.New
	if o.stacked {
		source = checkpoint.NewStacked
	}
	src, err := source(config, o.seed)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return err
	}
	switch there, err := os.ReadDir(o.out); {
	case err != nil:
		return err
	case len(there) > 0:
		return fmt.Errorf("%s is not empty", o.out)
	}
	type sized struct {
		Vocab int `json:"vocab_size"`
	}
	var sizes struct {
		sized
		Text sized `json:"text_config"`
	}
	if err := json.Unmarshal(config, &sizes); err != nil {
		return err
	}
	if err := writeTokenizer(o.out, o.tokenizer, max(sizes.Vocab, sizes.Text.Vocab)); err != nil {
		return err
	}
	weights := func(path string, tensors []tensor.Info) error { return writeWeights(path, tensors, src) }
	switch {
	case o.holes:
		err = checkpoint.WriteHoles(o.out, src.Tensors(), holeBytes)
	case src.Size() > shardBytes:
		err = checkpoint.WriteShards(o.out, src.Tensors(), shardBytes, weights)
	default:
		err = weights(filepath.Join(o.out, "model.safetensors"), src.Tensors())
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "config.json"), append(config, '\n'), 0o666); err != nil || o.gguf == "" {
		return err
	}
	return writeGGUF(o.gguf, o.shape, s, src)
}

func writeWeights(path string, tensors []tensor.Info, src *checkpoint.Source) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	err = shard.Write(b, tensors, func(name string) (io.Reader, error) { return src.Open(name) })
	return errors.Join(err, b.Flush(), f.Close())
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
