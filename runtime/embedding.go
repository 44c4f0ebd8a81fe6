package runtime

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// embedding looks up token rows as the engine's DiskEmbedding does: in the table of the weight file that
// tie_embeddings points to, or in a file of bfloat16 rows.
type embedding struct {
	hidden, vocab int
	bits, block   int // bits 0: bfloat16 rows
	codes         []byte
	alpha         []float32
	halves        []byte // alpha as halves, in the place of floats
	symmetric     bool
	file          *weights // of bfloat16 rows
}

// tie is tie_embeddings, in either of its forms.
type tie struct {
	WeightOffset int64  `json:"weight_offset"`
	AlphaOffset  int64  `json:"alpha_offset"`
	AlphaSize    int64  `json:"alpha_size"`
	Bits         int    `json:"quant_bit"`
	Block        int    `json:"quant_block"`
	AlphaDType   string `json:"alpha_dtype"`
}

func parseTie(raw json.RawMessage) (*tie, error) {
	var t tie
	var list []int64
	if err := json.Unmarshal(raw, &list); err == nil {
		if len(list) != 5 && len(list) != 6 {
			return nil, fmt.Errorf("tie_embeddings: %d entries, want 5 or 6: %w", len(list), tensor.ErrCorrupt)
		}
		t = tie{list[0], list[1], list[2], int(list[3]), int(list[4]), "fp32"}
		if len(list) == 6 && list[5] != 0 {
			t.AlphaDType = "fp16"
		}
	} else if err := json.Unmarshal(raw, &t); err != nil {
		return nil, fmt.Errorf("tie_embeddings: %v: %w", err, tensor.ErrCorrupt)
	}
	if t.AlphaDType == "" {
		t.AlphaDType = "fp32"
	}
	return &t, nil
}

func openEmbedding(dir string, c *Config, w *weights) (*embedding, error) {
	e := &embedding{hidden: c.HiddenSize}
	if len(c.Tie) == 0 || string(c.Tie) == "null" {
		var err error
		if e.file, err = openWeights(dir, c.EmbeddingFile); err != nil {
			return nil, err
		}
		e.codes = e.file.b
		if row := 2 * c.HiddenSize; len(e.codes) == 0 || len(e.codes)%row != 0 {
			return nil, fmt.Errorf("%s: %d bytes are not whole rows of %d bfloat16 numbers: %w", c.EmbeddingFile, len(e.codes), c.HiddenSize, tensor.ErrCorrupt)
		}
		e.vocab = len(e.codes) / (2 * c.HiddenSize)
		return e, nil
	}
	t, err := parseTie(c.Tie)
	if err != nil {
		return nil, err
	}
	if t.WeightOffset == 0 {
		return nil, fmt.Errorf("tie_embeddings points to an embedding file: %w", tensor.ErrUnsupported)
	}
	if err := e.openTable(t, w); err != nil {
		return nil, fmt.Errorf("tie_embeddings: %w", err)
	}
	return e, nil
}

func (e *embedding) openTable(t *tie, w *weights) error {
	if t.Bits != 4 && t.Bits != 8 && t.Bits != 16 {
		return fmt.Errorf("%d-bit rows: %w", t.Bits, tensor.ErrUnsupported)
	}
	e.bits, e.block = t.Bits, t.Block
	rowBytes := int64(e.hidden * t.Bits / 8)
	size := t.AlphaOffset - t.WeightOffset
	if size <= 0 || rowBytes == 0 || size%rowBytes != 0 || size/rowBytes > math.MaxInt32 {
		return fmt.Errorf("%d bytes are not whole rows of %d: %w", size, rowBytes, tensor.ErrCorrupt)
	}
	e.vocab = int(size / rowBytes)
	var err error
	if e.codes, err = w.Bytes(t.WeightOffset, size); err != nil {
		return err
	}
	if t.Bits == 16 {
		return nil
	}
	if e.block == 0 {
		e.block = e.hidden
	}
	if e.block < 0 || e.hidden%e.block != 0 || e.block*t.Bits%8 != 0 {
		return fmt.Errorf("rows of %d in blocks of %d: %w", e.hidden, e.block, tensor.ErrCorrupt)
	}
	raw, err := w.Bytes(t.AlphaOffset, t.AlphaSize)
	if err != nil {
		return err
	}
	switch t.AlphaDType {
	case "fp16":
		e.halves = raw[:len(raw)/2*2]
	case "fp32":
		e.alpha = mnn.Floats(raw)
	default:
		return fmt.Errorf("alpha_dtype %q: %w", t.AlphaDType, tensor.ErrUnsupported)
	}
	blocks := e.vocab * (e.hidden / e.block)
	switch e.scales() {
	case blocks:
		e.symmetric = true
	case 2 * blocks:
	default:
		return fmt.Errorf("%d scales for %d blocks: %w", e.scales(), blocks, tensor.ErrCorrupt)
	}
	return nil
}

// scales counts scales and zero terms.
func (e *embedding) scales() int { return len(e.alpha) + len(e.halves)/2 }

// term is a scale or zero term.
func (e *embedding) term(i int) float32 {
	if e.halves == nil {
		return e.alpha[i]
	}
	var v [1]float32
	kernel.F16ToF32(v[:], e.halves[2*i:2*i+2])
	return v[0]
}

// rows writes the embeddings of tokens, [len(tokens), hidden], to dst, which grows as needed, and returns it. fused rounds the
// product and sum of a code once, as the engine does on arm64.
func (e *embedding) rows(dst []float32, tokens []int32, fused bool) ([]float32, error) {
	n := len(tokens) * e.hidden
	if cap(dst) < n {
		dst = make([]float32, n)
	}
	dst = dst[:n]
	for i, t := range tokens {
		if t < 0 || int(t) >= e.vocab {
			return nil, fmt.Errorf("token %d of a vocabulary of %d: %w", t, e.vocab, tensor.ErrCorrupt)
		}
		e.row(dst[i*e.hidden:(i+1)*e.hidden], int(t), fused)
	}
	return dst, nil
}

func (e *embedding) row(dst []float32, t int, fused bool) {
	switch e.bits {
	case 0:
		kernel.BF16ToF32(dst, e.codes[2*t*e.hidden:][:2*e.hidden])
		return
	case 16:
		kernel.F16ToF32(dst, e.codes[2*t*e.hidden:][:2*e.hidden])
		return
	}
	value := func(u byte, scale, low float32) float32 { return float32(float32(u)*scale) + low }
	if fused {
		value = func(u byte, scale, low float32) float32 { return kernel.FMA(float32(u), scale, low) }
	}
	n := e.hidden / e.block
	src := e.codes[t*(e.hidden*e.bits/8):][:e.hidden*e.bits/8]
	mid := float32(int(1) << (e.bits - 1))
	for b := range n {
		var scale, low float32 // low is the value of code 0
		if e.symmetric {
			scale = e.term(t*n + b)
			low = -mid * scale
		} else {
			scale = e.term(2*(t*n+b) + 1)
			low = e.term(2*(t*n+b)) + float32(scale*-mid)
		}
		d := dst[b*e.block : (b+1)*e.block]
		if e.bits == 8 {
			for j, u := range src[b*e.block:][:e.block] {
				d[j] = value(u, scale, low)
			}
			continue
		}
		for j, u := range src[b*e.block/2:][:e.block/2] {
			d[2*j] = value(u>>4, scale, low)
			d[2*j+1] = value(u&15, scale, low)
		}
	}
}

func (e *embedding) close() {
	if e.file != nil {
		e.file.close()
	}
}
