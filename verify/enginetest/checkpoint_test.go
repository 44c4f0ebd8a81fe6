//go:build engine

package enginetest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/synthetic/packed"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// variant is a checkpoint in memory that is made of another one.
type variant struct {
	t       *testing.T
	config  map[string]any
	order   []string
	weights map[string]*weight
}

// weight is [rows, cols]; a vector has one row.
type weight struct {
	shape      []int64
	rows, cols int
	data       []float32
}

// tinyVariant begins with tiny-qwen3.
func tinyVariant(t *testing.T) *variant {
	t.Helper()
	src := checkpoints(t, false)[0]
	b, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	v := &variant{t: t, weights: map[string]*weight{}}
	if err := json.Unmarshal(b, &v.config); err != nil {
		t.Fatal(err)
	}
	c, err := safetensors.OpenDir(src)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, info := range c.Tensors() {
		r, err := c.Open(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		w := &weight{shape: info.Shape, rows: 1, cols: int(info.Shape[len(info.Shape)-1])}
		if len(info.Shape) == 2 {
			w.rows = int(info.Shape[0])
		}
		w.data = make([]float32, w.rows*w.cols)
		if err := kernel.ToF32(w.data, raw, info.DType); err != nil {
			t.Fatal(err)
		}
		v.add(info.Name, w)
	}
	return v
}

func (v *variant) add(name string, w *weight) {
	v.order, v.weights[name] = append(v.order, name), w
}

// named finds the weights whose names end so.
func (v *variant) named(suffix string) []*weight {
	var list []*weight
	for _, n := range v.order {
		if strings.HasSuffix(n, suffix) {
			list = append(list, v.weights[n])
		}
	}
	if len(list) == 0 {
		v.t.Fatalf("no %s", suffix)
	}
	return list
}

// write puts the checkpoint into a directory, weights in float32.
func (v *variant) write() string {
	v.t.Helper()
	dir := v.t.TempDir()
	var out []packed.Tensor
	for _, n := range v.order {
		w := v.weights[n]
		var data []byte
		for _, x := range w.data {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		out = append(out, packed.Tensor{Info: tensor.Info{Name: n, DType: tensor.F32, Shape: w.shape}, Data: data})
	}
	if err := packed.Write(dir, out); err != nil {
		v.t.Fatal(err)
	}
	b, err := json.Marshal(v.config)
	if err != nil {
		v.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o666); err != nil {
		v.t.Fatal(err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"} {
		b, err := os.ReadFile(filepath.Join(checkpoints(v.t, false)[0], name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o666)
		}
		if err != nil {
			v.t.Fatal(err)
		}
	}
	return dir
}

func (w *weight) row(r int) []float32 { return w.data[r*w.cols : (r+1)*w.cols] }

// scaleColumn multiplies a column.
func (w *weight) scaleColumn(c int, by float32) {
	for r := range w.rows {
		w.data[r*w.cols+c] *= by
	}
}

// cut keeps the first rows and columns.
func (w *weight) cut(rows, cols int) {
	var data []float32
	for r := range rows {
		data = append(data, w.row(r)[:cols]...)
	}
	w.rows, w.cols, w.data, w.shape = rows, cols, data, []int64{int64(rows), int64(cols)}
}

// outlying makes some channels behind every norm 30 times as large and undoes that in the matrices that read them. The
// head is not tied any more, so that the last norm takes part.
func outlying(t *testing.T) string {
	const by = 30
	v := tinyVariant(t)
	table := v.weights["model.embed_tokens.weight"]
	v.config["tie_word_embeddings"] = false
	v.add("lm_head.weight", &weight{table.shape, table.rows, table.cols, slices.Clone(table.data)})
	blow := func(norm string, readers ...string) {
		gamma := v.weights[norm]
		for _, c := range []int{7, 100, 201} {
			gamma.data[c] *= by
			for _, r := range readers {
				v.weights[r].scaleColumn(c, 1./by)
			}
		}
	}
	for i := range v.named("input_layernorm.weight") {
		layer := fmt.Sprintf("model.layers.%d.", i)
		blow(layer+"input_layernorm.weight", layer+"self_attn.q_proj.weight", layer+"self_attn.k_proj.weight", layer+"self_attn.v_proj.weight")
		blow(layer+"post_attention_layernorm.weight", layer+"mlp.gate_proj.weight", layer+"mlp.up_proj.weight")
	}
	blow("model.norm.weight", "lm_head.weight")
	return v.write()
}

// edged has fewer channels between the matrices of the MLP, a constant row, a row and a block of zeros, and a channel
// that is always 0.
func edged(t *testing.T, intermediate int) string {
	v := tinyVariant(t)
	v.config["intermediate_size"] = intermediate
	for _, suffix := range []string{"gate_proj.weight", "up_proj.weight"} {
		for _, w := range v.named(suffix) {
			w.cut(intermediate, w.cols)
		}
	}
	for _, w := range v.named("down_proj.weight") {
		w.cut(w.rows, intermediate)
	}
	constant := v.weights["model.layers.0.self_attn.q_proj.weight"].row(3)
	for i := range constant {
		constant[i] = 0.03
	}
	clear(v.weights["model.layers.1.mlp.up_proj.weight"].row(5))
	clear(v.weights["model.layers.1.self_attn.o_proj.weight"].row(9)[64:128])
	v.weights["model.layers.2.input_layernorm.weight"].data[40] = 0
	return v.write()
}
