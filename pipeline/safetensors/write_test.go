package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	if err := Write(b, infos, content(infos)); err != nil {
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

// golden is the whole file that TestWrite expects, without its data.
const golden = `{"__metadata__":{"format":"pt"},` +
	`"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},` +
	`"c":{"dtype":"BF16","shape":[1,3],"data_offsets":[8,14]},` +
	`"b":{"dtype":"F8_E5M2","shape":[],"data_offsets":[14,15]}}`

func TestWrite(t *testing.T) {
	infos := []tensor.Info{
		{Name: "b", DType: tensor.F8E5M2},
		{Name: "c", DType: tensor.BF16, Shape: tensor.Shape{1, 3}},
		{Name: "a", DType: tensor.F32, Shape: tensor.Shape{2}},
	}
	got := write(t, infos)
	want := file(golden, 0)
	for _, i := range []int{2, 1, 0} {
		want = append(want, contentOf(infos[i])...)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := read(got); err != nil {
		t.Error(err)
	}
	infos[0], infos[2] = infos[2], infos[0]
	if !bytes.Equal(got, write(t, infos)) {
		t.Error("the order of the arguments changes the file")
	}
}

func TestWriteRefuses(t *testing.T) {
	one := tensor.Info{Name: "a", DType: tensor.U8, Shape: tensor.Shape{2}}
	give := func(s string) func(string) (io.Reader, error) {
		return func(string) (io.Reader, error) { return strings.NewReader(s), nil }
	}
	cases := []struct {
		name  string
		infos []tensor.Info
		data  func(string) (io.Reader, error)
		want  error
	}{
		{"duplicate", []tensor.Info{one, one}, give("ab"), tensor.ErrUnsupported},
		{"metadata name", []tensor.Info{{Name: metadataKey, DType: tensor.U8}}, give("a"), tensor.ErrUnsupported},
		{"bad UTF-8", []tensor.Info{{Name: "\xff", DType: tensor.U8}}, give("a"), tensor.ErrUnsupported},
		{"no dtype", []tensor.Info{{Name: "a"}}, give(""), tensor.ErrUnsupported},
		{"negative shape", []tensor.Info{{Name: "a", DType: tensor.U8, Shape: tensor.Shape{-1}}}, give(""), tensor.ErrCorrupt},
		{"overflow", []tensor.Info{{Name: "a", DType: tensor.F64, Shape: tensor.Shape{1 << 61}}}, give(""), tensor.ErrCorrupt},
		{"data short", []tensor.Info{one}, give("a"), tensor.ErrCorrupt},
		{"data long", []tensor.Info{one}, give("abc"), tensor.ErrCorrupt},
		{"data fails", []tensor.Info{one}, func(string) (io.Reader, error) { return nil, io.ErrClosedPipe }, io.ErrClosedPipe},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := Write(io.Discard, c.infos, c.data); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
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
