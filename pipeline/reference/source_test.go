package reference

import (
	"bytes"
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

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// memory is a tensor.Source that tests may damage.
type memory struct {
	infos []tensor.Info
	data  map[string][]byte
}

func (m *memory) Tensors() []tensor.Info { return m.infos }

func (m *memory) Open(name string) (*io.SectionReader, error) {
	b, ok := m.data[name]
	if !ok {
		return nil, fmt.Errorf("no tensor %q", name)
	}
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))), nil
}

// clone copies everything, so that a test can change it.
func (m *memory) clone() *memory {
	c := &memory{infos: slices.Clone(m.infos), data: make(map[string][]byte)}
	for name, b := range m.data {
		c.data[name] = slices.Clone(b)
	}
	return c
}

// info is the changeable entry of a tensor.
func (m *memory) info(t testing.TB, name string) *tensor.Info {
	for i := range m.infos {
		if m.infos[i].Name == name {
			return &m.infos[i]
		}
	}
	t.Fatalf("no tensor %q", name)
	return nil
}

// readFile reads a safetensors file that the repository holds.
func readFile(t testing.TB, path string) *memory {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	length := binary.LittleEndian.Uint64(file)
	header, body := file[8:8+length], file[8+length:]
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(header, &entries); err != nil {
		t.Fatal(err)
	}
	m := &memory{data: make(map[string][]byte)}
	for name, raw := range entries {
		if name == "__metadata__" {
			continue
		}
		var e struct {
			DType       string       `json:"dtype"`
			Shape       tensor.Shape `json:"shape"`
			DataOffsets [2]int64     `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		dtype, err := tensor.ParseDType(e.DType)
		if err != nil {
			t.Fatal(err)
		}
		m.data[name] = body[e.DataOffsets[0]:e.DataOffsets[1]]
		m.infos = append(m.infos, tensor.Info{Name: name, DType: dtype, Shape: e.Shape, Size: int64(len(m.data[name]))})
	}
	slices.SortFunc(m.infos, func(a, b tensor.Info) int { return strings.Compare(a.Name, b.Name) })
	return m
}

// readCheckpoint describes the checkpoint in a folder, whose tensors it gives as the description names them.
func readCheckpoint(t testing.TB, dir string) (*arch.Decoder, tensor.Source) {
	t.Helper()
	d, src := readTensors(t, dir)
	opened, err := arch.Open(d, src)
	if err != nil {
		t.Fatal(err)
	}
	return d, opened
}

// readTensors describes the checkpoint in a folder and gives its own tensors.
func readTensors(t testing.TB, dir string) (*arch.Decoder, *memory) {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	src := readFile(t, filepath.Join(dir, "model.safetensors"))
	m, err := arch.Describe(config, src.Tensors(), arch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Text, src
}

// tokens reads a tensor of token ids.
func (m *memory) tokens(t testing.TB, name string) []int32 {
	t.Helper()
	b, width := m.data[name], int(m.info(t, name).DType.Size())
	ids := make([]int32, len(b)/width)
	for i := range ids { // all ids are small, whatever the integer type
		ids[i] = int32(binary.LittleEndian.Uint16(b[i*width:]))
	}
	return ids
}

// floats reads a tensor of float32.
func (m *memory) floats(name string) []float32 {
	b := m.data[name]
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}

// attentionOf and mlpOf are the blocks of a layer of attention and an MLP.
func attentionOf(d *arch.Decoder, i int) *arch.Attention {
	return d.Layers[i][0].Block.(*arch.Attention)
}
func mlpOf(d *arch.Decoder, i int) *arch.MLP { return d.Layers[i][1].Block.(*arch.MLP) }
