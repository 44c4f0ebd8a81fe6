// Package checkpoint makes up checkpoints: the tensors that a config.json calls for, with random weights that are
// computed when they are read, so that a source of any size takes neither memory nor disk.
package checkpoint

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Source is a tensor.Source of BF16 weights. Norms are 1; all others are random with mean 0 and the standard deviation
// that initializer_range gives, or 0.02, and close to a normal distribution; those of fp8 and mxfp4 are random codes with
// scales of that order. The same config and seed give the same bytes on every machine.
type Source struct {
	infos []tensor.Info
	seed  uint64
	scale float32
}

// config holds the keys that determine the tensors of a family.
type config struct {
	experts

	ModelType    string  `json:"model_type"`
	Hidden       int64   `json:"hidden_size"`
	Intermediate int64   `json:"intermediate_size"`
	Layers       int     `json:"num_hidden_layers"`
	Heads        int64   `json:"num_attention_heads"`
	KVHeads      int64   `json:"num_key_value_heads"`
	HeadDim      int64   `json:"head_dim"`
	Vocab        int64   `json:"vocab_size"`
	Tied         bool    `json:"tie_word_embeddings"`
	Range        float64 `json:"initializer_range"`

	// Of a model that sees, and then the rest is that of its text model.
	Text   *config `json:"text_config"`
	Vision *vision `json:"vision_config"`
}

// New makes up the checkpoint of a config.json. Model types are llama, qwen2 and qwen3; qwen3_moe, deepseek_v3 and gpt_oss; llava
// with a tower of siglip_vision_model and one of the first three.
// With a quantization_config of fp8 (all but gpt_oss) or mxfp4 (gpt_oss) the tensors are those of such a checkpoint.
func New(configJSON []byte, seed uint64) (*Source, error) { return made(configJSON, seed, false) }

// NewStacked is New, but the experts of qwen3_moe and deepseek_v3 are two BF16 tensors of three dimensions in every layer.
func NewStacked(configJSON []byte, seed uint64) (*Source, error) { return made(configJSON, seed, true) }

func made(configJSON []byte, seed uint64, stacked bool) (*Source, error) {
	c := config{Range: 0.02}
	if err := json.Unmarshal(configJSON, &c); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	prefix := ""
	if c.ModelType == "llava" && c.Text != nil && c.Vision != nil {
		v := c.Vision
		c, prefix = *c.Text, "language_model."
		c.Vision, c.Range = v, cmp.Or(c.Range, 0.02)
		if v.Hidden <= 0 || v.Patch <= 0 || v.Image < v.Patch {
			return nil, fmt.Errorf("config.json: vision_config: hidden_size %d, image_size %d, patch_size %d", v.Hidden, v.Image, v.Patch)
		}
	}
	if c.Hidden <= 0 || c.Heads <= 0 || c.KVHeads <= 0 {
		return nil, fmt.Errorf("config.json: hidden_size %d, num_attention_heads %d, num_key_value_heads %d", c.Hidden, c.Heads, c.KVHeads)
	}
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	c.Stacked = stacked
	l := &list{config: &c, prefix: prefix}
	l.model()
	if c.Vision != nil {
		l.tower(c.Vision)
	}
	if l.err != nil {
		return nil, l.err
	}
	slices.SortFunc(l.infos, func(a, b tensor.Info) int { return strings.Compare(a.Name, b.Name) })
	return &Source{infos: l.infos, seed: seed, scale: float32(c.Range / deviation)}, nil
}

// list is the tensors of a config as they are added.
type list struct {
	*config
	prefix string // of the text model
	infos  []tensor.Info
	err    error
}

func (l *list) add(name string, t tensor.DType, shape ...int64) {
	n, err := tensor.Shape(shape).Elements()
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("%s: %w", name, err)
	}
	l.infos = append(l.infos, tensor.Info{Name: name, DType: t, Shape: shape, Size: t.Size() * n})
}

func (l *list) model() {
	l.add(l.prefix+"model.embed_tokens.weight", tensor.BF16, l.Vocab, l.Hidden)
	for i := range l.Layers {
		p := fmt.Sprintf("%smodel.layers.%d.", l.prefix, i)
		switch l.ModelType {
		case "deepseek_v3":
			l.deepSeek(i, p)
		case "gpt_oss":
			l.gptOss(p)
		case "qwen3_moe":
			l.attention(p)
			l.qwen3Moe(p)
		default:
			l.attention(p)
			l.gated(p+"mlp.", l.Intermediate)
		}
	}
	l.add(l.prefix+"model.norm.weight", tensor.BF16, l.Hidden)
	if !l.Tied {
		l.add(l.prefix+"lm_head.weight", tensor.BF16, l.Vocab, l.Hidden)
	}
}

// attention adds the first block of a layer of the llama and qwen families, and the norms of both.
func (l *list) attention(p string) {
	for _, w := range []struct {
		name       string
		rows, cols int64
		bias       bool
	}{
		{"self_attn.q_proj", l.Heads * l.HeadDim, l.Hidden, l.ModelType == "qwen2"},
		{"self_attn.k_proj", l.KVHeads * l.HeadDim, l.Hidden, l.ModelType == "qwen2"},
		{"self_attn.v_proj", l.KVHeads * l.HeadDim, l.Hidden, l.ModelType == "qwen2"},
		{"self_attn.o_proj", l.Hidden, l.Heads * l.HeadDim, false},
	} {
		l.matrix(p+w.name, w.rows, w.cols)
		if w.bias {
			l.add(p+w.name+".bias", tensor.BF16, w.rows)
		}
	}
	l.add(p+"input_layernorm.weight", tensor.BF16, l.Hidden)
	l.add(p+"post_attention_layernorm.weight", tensor.BF16, l.Hidden)
	if strings.HasPrefix(l.ModelType, "qwen3") {
		l.add(p+"self_attn.q_norm.weight", tensor.BF16, l.HeadDim)
		l.add(p+"self_attn.k_norm.weight", tensor.BF16, l.HeadDim)
	}
}

// Tensors implements tensor.Source; they are sorted by name.
func (s *Source) Tensors() []tensor.Info { return s.infos }

// Open implements tensor.Source.
func (s *Source) Open(name string) (*io.SectionReader, error) {
	i, ok := slices.BinarySearchFunc(s.infos, name, func(t tensor.Info, n string) int { return strings.Compare(t.Name, n) })
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, tensor.ErrCorrupt)
	}
	w := &weights{seed: mix(s.seed ^ uint64(i)<<40), scale: s.scale}
	if t := s.infos[i]; t.DType != tensor.BF16 {
		return io.NewSectionReader(&narrow{weights: w, info: t}, 0, t.Size), nil
	}
	if strings.HasSuffix(name, ".weight") && len(s.infos[i].Shape) == 1 { // of a norm
		w.scale = 0
	}
	return io.NewSectionReader(w, 0, s.infos[i].Size), nil
}

// Size is the number of bytes of all tensors.
func (s *Source) Size() (n int64) {
	for _, t := range s.infos {
		n += t.Size
	}
	return n
}

// weights are those of one tensor, without an end. With scale 0 they are 1.
type weights struct {
	seed  uint64
	scale float32
}

// ReadAt implements io.ReaderAt: any piece can be read without those before it.
func (w *weights) ReadAt(b []byte, off int64) (int, error) {
	i, n := uint64(off)/2, 0
	if off%2 != 0 && len(b) > 0 {
		b[0] = byte(w.at(i) >> 8)
		i, n = i+1, 1
	}
	for ; n+2 <= len(b); i, n = i+1, n+2 {
		binary.LittleEndian.PutUint16(b[n:], w.at(i))
	}
	if n < len(b) {
		b[n] = byte(w.at(i))
	}
	return len(b), nil
}

// deviation is that of the sum of four numbers that are evenly distributed over 0 to 65535, and center its mean. The sum
// has the shape of a bell, only integers are added, and nothing lies beyond 3.5 deviations.
const (
	deviation = 37837.2
	center    = 2 * 65535
)

// at is weight i as bfloat16.
func (w *weights) at(i uint64) uint16 {
	const one = 0x3f80
	if w.scale == 0 {
		return one
	}
	h := mix(w.seed + i)
	sum := int(h&0xffff) + int(h>>16&0xffff) + int(h>>32&0xffff) + int(h>>48)
	v := math.Float32bits(float32(sum-center) * w.scale)
	return uint16((v + 0x7fff + v>>16&1) >> 16)
}

// mix spreads the bits of x (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
