package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

const small = `{"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
	"num_key_value_heads": 2, "vocab_size": 300, "tie_word_embeddings": true, "initializer_range": 0.05}`

func source(t *testing.T, config string, seed uint64) *Source {
	t.Helper()
	s, err := New([]byte(config), seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func read(t *testing.T, s *Source, name string) []byte {
	t.Helper()
	r, err := s.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTensors(t *testing.T) {
	s := source(t, small, 1)
	if n := len(s.Tensors()); n != 1+2*11+1 {
		t.Errorf("%d tensors", n)
	}
	var total int64
	for _, info := range s.Tensors() {
		n, err := info.Shape.Elements()
		if err != nil || info.DType != tensor.BF16 || info.Size != 2*n || int64(len(read(t, s, info.Name))) != info.Size {
			t.Errorf("%+v: %v", info, err)
		}
		total += info.Size
	}
	if s.Size() != total {
		t.Errorf("size %d, want %d", s.Size(), total)
	}
	if _, err := s.Open("lm_head.weight"); err == nil {
		t.Error("a tied model has a head")
	}
	for _, bad := range []string{"{", "{}", `{"hidden_size": 8, "num_attention_heads": 0, "num_key_value_heads": 1}`} {
		if _, err := New([]byte(bad), 1); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestDistribution(t *testing.T) {
	s := source(t, small, 1)
	for i, b := range slices.Collect(slices.Chunk(read(t, s, "model.norm.weight"), 2)) {
		if binary.LittleEndian.Uint16(b) != 0x3f80 {
			t.Fatalf("norm %d is not 1", i)
		}
	}
	var n, mean, squares, most float64
	for b := range slices.Chunk(read(t, s, "model.embed_tokens.weight"), 2) {
		v := float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
		n, mean, squares, most = n+1, mean+v, squares+v*v, max(most, math.Abs(v))
	}
	mean, squares = mean/n, math.Sqrt(squares/n)
	// 19,200 samples: the deviation of the mean is 0.0004.
	if math.Abs(mean) > 0.002 || math.Abs(squares-0.05) > 0.001 || most > 3.5*0.05 || most < 3*0.05 {
		t.Errorf("mean %g, deviation %g, largest %g", mean, squares, most)
	}
}

// Pieces at any offset are pieces of the whole.
func TestReadAt(t *testing.T) {
	s := source(t, small, 1)
	const name = "model.layers.1.mlp.up_proj.weight"
	whole := read(t, s, name)
	r, err := s.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	for off := range 9 {
		for n := range 9 {
			b := make([]byte, n)
			if _, err := r.ReadAt(b, int64(off)); err != nil || !slices.Equal(b, whole[off:off+n]) {
				t.Fatalf("%d bytes at %d: %x, want %x (%v)", n, off, b, whole[off:off+n], err)
			}
		}
	}
}

// The weights are the same on every machine, and others for another tensor or seed.
func TestSeed(t *testing.T) {
	const name = "model.layers.0.mlp.up_proj.weight"
	sum := func(seed uint64, name string) string {
		h := sha256.Sum256(read(t, source(t, small, seed), name))
		return hex.EncodeToString(h[:8])
	}
	if got, want := sum(1, name), "a033095ab624dd38"; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	if sum(1, name) == sum(2, name) || sum(1, name) == sum(1, "model.layers.1.mlp.up_proj.weight") {
		t.Error("weights repeat")
	}
}
