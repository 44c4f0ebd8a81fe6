package packed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmexport/llmexport/internal/synthetic/shard"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Convert writes the checkpoint of directory src to dst, which must exist, with every matrix named *_proj.weight packed.
// It holds the whole checkpoint in memory.
func Convert(dst, src string, o Options) error {
	c, err := safetensors.OpenDir(src)
	if err != nil {
		return err
	}
	defer c.Close()
	var out []Tensor
	for _, t := range c.Tensors() {
		raw, err := readAll(c, t.Name)
		if err != nil {
			return err
		}
		module, isProj := strings.CutSuffix(t.Name, "_proj.weight")
		if !isProj {
			out = append(out, Tensor{t, raw})
			continue
		}
		rows, cols := int(t.Shape[0]), int(t.Shape[1])
		w := make([]float32, rows*cols)
		if err := kernel.ToF32(w, raw, t.DType); err != nil {
			return err
		}
		m, err := o.Round(w, rows, cols)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		out = append(out, o.Pack(module+"_proj", m)...)
	}
	if err := Write(dst, out); err != nil {
		return err
	}
	return copyOthers(dst, src, o.Config())
}

// Write writes tensors as model.safetensors of a directory.
func Write(dir string, tensors []Tensor) (err error) {
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data := map[string][]byte{}
	infos := make([]tensor.Info, len(tensors))
	for i, t := range tensors {
		infos[i], data[t.Name] = t.Info, t.Data
	}
	return shard.Write(f, infos, func(name string) (io.Reader, error) { return bytes.NewReader(data[name]), nil })
}

func readAll(src tensor.Source, name string) ([]byte, error) {
	r, err := src.Open(name)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// copyOthers copies all files except the weights. Unless it is nil, config.json gets a quantization_config.
func copyOthers(dst, src string, quantization json.RawMessage) error {
	files, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !f.Type().IsRegular() || strings.Contains(f.Name(), ".safetensors") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(src, f.Name()))
		if err == nil && f.Name() == "config.json" && quantization != nil {
			var fields map[string]json.RawMessage
			if err = json.Unmarshal(b, &fields); err == nil {
				fields["quantization_config"] = quantization
				b, err = json.MarshalIndent(fields, "", "  ")
			}
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dst, f.Name()), b, 0o666)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
