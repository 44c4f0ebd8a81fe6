package plan

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	synthetic "github.com/llmexport/llmexport/internal/synthetic/checkpoint"
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
	described, err := arch.Describe(config, tensors, arch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := lower.Lower(described, lower.Options{})
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
	src, err := synthetic.New(text, 1)
	if err != nil {
		t.Fatal(err)
	}
	g := &generated{Source: src}
	return lowered(t, text, g.Tensors()), g
}

// generated is a source of made-up weights that can be damaged.
type generated struct {
	*synthetic.Source
	// damage, if set, changes what is read of a tensor: b holds its bytes from off on.
	damage func(name string, off int64, b []byte)
	// short is the name of a tensor whose bytes end early.
	short string
}

func (g *generated) Open(name string) (*io.SectionReader, error) {
	r, err := g.Source.Open(name)
	if err != nil {
		return nil, err
	}
	size := r.Size()
	if name == g.short {
		size -= 2
	}
	return io.NewSectionReader(&damaged{g, name, r}, 0, size), nil
}

type damaged struct {
	source *generated
	name   string
	io.ReaderAt
}

func (d *damaged) ReadAt(b []byte, off int64) (int, error) {
	n, err := d.ReaderAt.ReadAt(b, off)
	if d.source.damage != nil {
		d.source.damage(d.name, off, b[:n])
	}
	return n, err
}
