package plan

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// archData holds the small checkpoints and the configs of published models.
var archData = filepath.Join("..", "arch", "testdata")

// checkpoint opens a small checkpoint and lowers it.
func checkpoint(t testing.TB, name string) (*lower.Model, *safetensors.Checkpoint) {
	t.Helper()
	src, err := safetensors.OpenDir(filepath.Join(archData, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	config, err := os.ReadFile(filepath.Join(archData, name, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return lowered(t, config, src.Tensors()), src
}

func lowered(t testing.TB, config []byte, tensors []tensor.Info) *lower.Model {
	t.Helper()
	d, err := arch.Describe(config, tensors, arch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := lower.Classic(d)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// published lowers a model of which only config.json is at hand, with some keys changed; the tensors follow
// from it.
func published(t testing.TB, name string, change map[string]any) (*lower.Model, *generated) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(archData, "hub", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	for k, v := range change {
		config[k] = v
	}
	if text, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	var c struct {
		ModelType    string `json:"model_type"`
		Hidden       int64  `json:"hidden_size"`
		Intermediate int64  `json:"intermediate_size"`
		Layers       int    `json:"num_hidden_layers"`
		Heads        int64  `json:"num_attention_heads"`
		KVHeads      int64  `json:"num_key_value_heads"`
		HeadDim      int64  `json:"head_dim"`
		Vocab        int64  `json:"vocab_size"`
		Tied         bool   `json:"tie_word_embeddings"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	g := &generated{}
	add := func(name string, shape ...int64) {
		n, err := tensor.Shape(shape).Elements()
		if err != nil {
			t.Fatal(err)
		}
		g.infos = append(g.infos, tensor.Info{Name: name, DType: tensor.BF16, Shape: shape, Size: 2 * n})
	}
	add("model.embed_tokens.weight", c.Vocab, c.Hidden)
	for i := range c.Layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		for _, w := range []struct {
			name       string
			rows, cols int64
			bias       bool
		}{
			{"self_attn.q_proj", c.Heads * c.HeadDim, c.Hidden, c.ModelType == "qwen2"},
			{"self_attn.k_proj", c.KVHeads * c.HeadDim, c.Hidden, c.ModelType == "qwen2"},
			{"self_attn.v_proj", c.KVHeads * c.HeadDim, c.Hidden, c.ModelType == "qwen2"},
			{"self_attn.o_proj", c.Hidden, c.Heads * c.HeadDim, false},
			{"mlp.gate_proj", c.Intermediate, c.Hidden, false},
			{"mlp.up_proj", c.Intermediate, c.Hidden, false},
			{"mlp.down_proj", c.Hidden, c.Intermediate, false},
		} {
			add(p+w.name+".weight", w.rows, w.cols)
			if w.bias {
				add(p+w.name+".bias", w.rows)
			}
		}
		add(p+"input_layernorm.weight", c.Hidden)
		add(p+"post_attention_layernorm.weight", c.Hidden)
		if c.ModelType == "qwen3" {
			add(p+"self_attn.q_norm.weight", c.HeadDim)
			add(p+"self_attn.k_norm.weight", c.HeadDim)
		}
	}
	add("model.norm.weight", c.Hidden)
	if !c.Tied {
		add("lm_head.weight", c.Vocab, c.Hidden)
	}
	slices.SortFunc(g.infos, func(a, b tensor.Info) int { return strings.Compare(a.Name, b.Name) })
	return lowered(t, text, g.infos), g
}

// generated is a tensor.Source of BF16 weights that are computed when they are read: nothing of it is in
// memory or on disk. Magnitudes run from 2^-7 to 2.
type generated struct {
	infos []tensor.Info
	// damage, if set, changes what is read of a tensor: b holds its bytes from off on.
	damage func(name string, off int64, b []byte)
	// short is the name of a tensor whose bytes end early.
	short string
}

func (g *generated) Tensors() []tensor.Info { return g.infos }

func (g *generated) Open(name string) (*io.SectionReader, error) {
	i, ok := slices.BinarySearchFunc(g.infos, name, func(t tensor.Info, n string) int { return strings.Compare(t.Name, n) })
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, tensor.ErrCorrupt)
	}
	size := g.infos[i].Size
	if name == g.short {
		size -= 2
	}
	return io.NewSectionReader(&generator{g, name, uint64(i) << 40}, 0, size), nil
}

// size is the number of bytes of all tensors.
func (g *generated) size() (n int64) {
	for _, t := range g.infos {
		n += t.Size
	}
	return n
}

type generator struct {
	source *generated
	name   string
	seed   uint64
}

// ReadAt fills b with four weights per hashed counter.
func (g *generator) ReadAt(b []byte, off int64) (int, error) {
	at := uint64(off)
	var word [8]byte
	for n := 0; n < len(b); {
		h := (g.seed + at/8 + 1) * 0x9e3779b97f4a7c15
		h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
		h ^= h >> 32
		h = h&0x83ff83ff83ff83ff | 0x3c003c003c003c00
		if at%8 == 0 && len(b)-n >= 8 {
			binary.LittleEndian.PutUint64(b[n:], h)
			n, at = n+8, at+8
			continue
		}
		binary.LittleEndian.PutUint64(word[:], h)
		k := copy(b[n:], word[at%8:])
		n, at = n+k, at+uint64(k)
	}
	if g.source.damage != nil {
		g.source.damage(g.name, off, b)
	}
	return len(b), nil
}
