package arch

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// checkpoint is the part of a checkpoint that Describe reads.
type checkpoint struct {
	config  []byte
	tensors []tensor.Info
}

// loadCheckpoint reads config.json and the header of model.safetensors.
func loadCheckpoint(t testing.TB, dir string) checkpoint {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	tensors := readHeader(t, filepath.Join(dir, "model.safetensors"))
	for _, m := range modulesOf(t, dir) {
		if m.Weighted() {
			for _, w := range readHeader(t, filepath.Join(dir, m.Path, "model.safetensors")) {
				w.Name = m.Path + "/" + w.Name
				tensors = append(tensors, w)
			}
		}
	}
	return checkpoint{config, tensors}
}

// describe is Describe for tests of the text model.
func describe(config []byte, tensors []tensor.Info, opts Options) (*Decoder, error) {
	m, err := Describe(config, tensors, opts)
	if err != nil {
		if m != nil {
			panic("a Model together with an error")
		}
		return nil, err
	}
	return m.Text, nil
}

// readHeader lists the tensors of a safetensors file: a length, then that many bytes of JSON.
func readHeader(t testing.TB, path string) []tensor.Info {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	var infos []tensor.Info
	for _, name := range slices.Sorted(maps.Keys(header)) {
		var entry struct {
			DType   string       `json:"dtype"`
			Shape   tensor.Shape `json:"shape"`
			Offsets tensor.Shape `json:"data_offsets"`
		}
		if err := json.Unmarshal(header[name], &entry); err != nil {
			t.Fatal(err)
		}
		dtype, err := tensor.ParseDType(entry.DType)
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, tensor.Info{Name: name, DType: dtype, Shape: entry.Shape, Size: entry.Offsets[1] - entry.Offsets[0]})
	}
	return infos
}

// edit returns a config with some keys replaced, "outer.inner" within an object; removed deletes a key.
func edit(t testing.TB, config []byte, changes map[string]any) []byte {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(config, &fields); err != nil {
		t.Fatal(err)
	}
	for k, v := range changes {
		of := fields
		for outer, inner, nested := strings.Cut(k, "."); nested; outer, inner, nested = strings.Cut(k, ".") {
			x, ok := of[outer].(map[string]any)
			if !ok {
				break // a key with a dot
			}
			of, k = x, inner
		}
		if v == removed {
			delete(of, k)
			continue
		}
		of[k] = v
	}
	out, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type removal struct{}

var removed any = removal{}

// synthetic lists the tensors that a model of the three families has, from its config alone and
// without the code under test.
func synthetic(t testing.TB, config []byte) []tensor.Info {
	t.Helper()
	var c struct {
		ModelType     string `json:"model_type"`
		Hidden        int64  `json:"hidden_size"`
		Intermediate  int64  `json:"intermediate_size"`
		Layers        int    `json:"num_hidden_layers"`
		Heads         int64  `json:"num_attention_heads"`
		KVHeads       int64  `json:"num_key_value_heads"`
		HeadDim       int64  `json:"head_dim"`
		Vocab         int64  `json:"vocab_size"`
		Tied          bool   `json:"tie_word_embeddings"`
		AttentionBias bool   `json:"attention_bias"`
		MLPBias       bool   `json:"mlp_bias"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	var infos []tensor.Info
	add := func(name string, shape ...int64) {
		infos = append(infos, tensor.Info{Name: name, DType: tensor.BF16, Shape: shape})
	}
	matrix := func(name string, rows, cols int64, bias bool) {
		add(name+".weight", rows, cols)
		if bias {
			add(name+".bias", rows)
		}
	}
	matrix("model.embed_tokens", c.Vocab, c.Hidden, false)
	for i := range c.Layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		qkvBias := c.AttentionBias || c.ModelType == "qwen2"
		matrix(p+"self_attn.q_proj", c.Heads*c.HeadDim, c.Hidden, qkvBias)
		matrix(p+"self_attn.k_proj", c.KVHeads*c.HeadDim, c.Hidden, qkvBias)
		matrix(p+"self_attn.v_proj", c.KVHeads*c.HeadDim, c.Hidden, qkvBias)
		matrix(p+"self_attn.o_proj", c.Hidden, c.Heads*c.HeadDim, c.AttentionBias)
		matrix(p+"mlp.gate_proj", c.Intermediate, c.Hidden, c.MLPBias)
		matrix(p+"mlp.up_proj", c.Intermediate, c.Hidden, c.MLPBias)
		matrix(p+"mlp.down_proj", c.Hidden, c.Intermediate, c.MLPBias)
		add(p+"input_layernorm.weight", c.Hidden)
		add(p+"post_attention_layernorm.weight", c.Hidden)
		if c.ModelType == "qwen3" {
			add(p+"self_attn.q_norm.weight", c.HeadDim)
			add(p+"self_attn.k_norm.weight", c.HeadDim)
		}
	}
	add("model.norm.weight", c.Hidden)
	if !c.Tied {
		matrix("lm_head", c.Vocab, c.Hidden, false)
	}
	return infos
}
