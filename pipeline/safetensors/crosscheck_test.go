package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	writer "github.com/llmexport/llmexport/internal/synthetic/shard"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// plain are the element types that both parsers read.
var plain = []tensor.DType{tensor.BOOL, tensor.U8, tensor.I8, tensor.U16, tensor.I16, tensor.U32, tensor.I32,
	tensor.U64, tensor.I64, tensor.F16, tensor.BF16, tensor.F32, tensor.F64}

// generate makes a file of a few random tensors from a seed.
func generate(t testing.TB, seed uint64) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	infos := make([]tensor.Info, r.IntN(7))
	for i := range infos {
		shape := make(tensor.Shape, r.IntN(4))
		for j := range shape {
			shape[j] = r.Int64N(5)
		}
		name := fmt.Sprintf("layers.%d.%c\"<é>", i, rune('a'+r.IntN(26)))
		infos[i] = tensor.Info{Name: name, DType: plain[r.IntN(len(plain))], Shape: shape}
	}
	return write(t, infos)
}

// write makes a file in which each byte tells its tensor and position.
func write(t testing.TB, infos []tensor.Info) []byte {
	t.Helper()
	b := new(bytes.Buffer)
	if err := writer.Write(b, infos, content(infos)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func content(infos []tensor.Info) func(string) (io.Reader, error) {
	return func(name string) (io.Reader, error) {
		for _, t := range infos {
			if t.Name == name {
				return bytes.NewReader(contentOf(t)), nil
			}
		}
		return nil, fmt.Errorf("no %q", name)
	}
}

func contentOf(t tensor.Info) []byte {
	n, _ := t.Shape.Elements()
	b := make([]byte, n*t.DType.Size())
	for i := range b {
		b[i] = byte(i + len(t.Name) + int(t.Name[len(t.Name)-1]))
	}
	return b
}

// TestCrossCheck lets both parsers read many files, and lets the check fail on each kind of difference.
func TestCrossCheck(t *testing.T) {
	for seed := range uint64(300) {
		b := generate(t, seed)
		h, err := read(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := crossCheck(b, h); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	b := write(t, []tensor.Info{{Name: "a", DType: tensor.F16, Shape: tensor.Shape{2, 3}}})
	for name, damage := range map[string]func(*Header){
		"name":     func(h *Header) { h.Entries[0].Name = "b" },
		"dtype":    func(h *Header) { h.Entries[0].DType = tensor.BF16 },
		"shape":    func(h *Header) { h.Entries[0].Shape[0] = 3 },
		"rank":     func(h *Header) { h.Entries[0].Shape = tensor.Shape{6} },
		"size":     func(h *Header) { h.Entries[0].Size++ },
		"offset":   func(h *Header) { h.Entries[0].Offset++ },
		"missing":  func(h *Header) { h.Entries = nil },
		"header":   func(h *Header) { h.Size += 8 },
		"metadata": func(h *Header) { h.Metadata["format"] = "tf" },
	} {
		h, err := read(b)
		if err != nil {
			t.Fatal(err)
		}
		damage(h)
		if err := crossCheck(b, h); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("different %s: %v", name, err)
		}
	}
}
