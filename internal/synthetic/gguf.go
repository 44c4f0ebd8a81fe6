package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/llmexport/llmexport/internal/synthetic/checkpoint"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// A GGUF file, version 3, little-endian:
//
//	"GGUF", u32 version, u64 number of tensors, u64 number of keys
//	per key     string, u32 type, value; a string is u64 length and bytes
//	per tensor  string, u32 number of dimensions, u64 each, the innermost first, u32 type, u64 offset in the data
//	data        each tensor at a multiple of 32 bytes
const (
	ggufVersion = 3
	ggufAlign   = 32

	ggufUint32, ggufFloat32, ggufString = 4, 6, 8 // types of values
	ggufF32, ggufBF16                   = 0, 30   // types of tensors
)

// ggufNames are the words of llama.cpp for those of the checkpoint.
var ggufNames = strings.NewReplacer(
	"model.embed_tokens", "token_embd", "model.norm", "output_norm", "model.layers", "blk",
	"input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm",
	"self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k", "self_attn.v_proj", "attn_v", "self_attn.o_proj", "attn_output",
	"mlp.gate_proj", "ffn_gate", "mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down",
)

// writeGGUF writes the weights as llama.cpp reads them, without a tokenizer. The rows of queries and keys stay in the
// order of the checkpoint, so that the model takes as long as that one and says something else.
func writeGGUF(path, name string, s shape, src *checkpoint.Source) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	defer func() { err = errors.Join(err, b.Flush(), f.Close()) }()
	head := ggufHead(name, s, src.Tensors())
	if _, err := b.Write(head); err != nil {
		return err
	}
	for _, t := range src.Tensors() {
		r, err := src.Open(t.Name)
		if err != nil {
			return err
		}
		var data io.Reader = r
		if len(t.Shape) == 1 {
			data = &widener{r: r}
		}
		n, err := io.Copy(b, data)
		if err == nil {
			_, err = b.Write(make([]byte, aligned(n)-n))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return nil
}

func aligned(n int64) int64 { return (n + ggufAlign - 1) / ggufAlign * ggufAlign }

func ggufHead(name string, s shape, tensors []tensor.Info) []byte {
	text := func(b []byte, v string) []byte {
		return append(binary.LittleEndian.AppendUint64(b, uint64(len(v))), v...)
	}
	keys := []struct {
		key   string
		value any
	}{
		{"general.architecture", "llama"}, {"general.name", name}, {"tokenizer.ggml.model", "no_vocab"},
		{"llama.vocab_size", s.vocab}, {"llama.context_length", s.positions}, {"llama.block_count", s.layers},
		{"llama.embedding_length", s.hidden}, {"llama.feed_forward_length", s.intermediate},
		{"llama.attention.head_count", s.heads}, {"llama.attention.head_count_kv", s.kvHeads},
		{"llama.attention.key_length", s.headDim}, {"llama.attention.value_length", s.headDim},
		{"llama.rope.dimension_count", s.headDim}, {"llama.rope.freq_base", float32(ropeTheta)},
		{"llama.attention.layer_norm_rms_epsilon", float32(normEps)},
	}
	b := binary.LittleEndian.AppendUint32([]byte("GGUF"), ggufVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(keys)))
	for _, k := range keys {
		b = text(b, k.key)
		switch v := k.value.(type) {
		case string:
			b = text(binary.LittleEndian.AppendUint32(b, ggufString), v)
		case int:
			b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, ggufUint32), uint32(v))
		case float32:
			b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, ggufFloat32), math.Float32bits(v))
		}
	}
	offset := int64(0)
	for _, t := range tensors {
		b = binary.LittleEndian.AppendUint32(text(b, ggufNames.Replace(t.Name)), uint32(len(t.Shape)))
		for i := range t.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(t.Shape[len(t.Shape)-1-i]))
		}
		size, kind := t.Size, uint32(ggufBF16)
		if len(t.Shape) == 1 { // llama.cpp wants norms in float32
			size, kind = 2*t.Size, ggufF32
		}
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, kind), uint64(offset))
		offset += aligned(size)
	}
	return append(b, make([]byte, aligned(int64(len(b)))-int64(len(b)))...)
}

// widener makes float32 of bfloat16.
type widener struct {
	r io.Reader
	b [2]byte
}

func (w *widener) Read(p []byte) (int, error) {
	if len(p) < 4 {
		return 0, io.ErrShortBuffer
	}
	if _, err := io.ReadFull(w.r, w.b[:]); err != nil {
		return 0, err
	}
	return copy(p, []byte{0, 0, w.b[0], w.b[1]}), nil
}
