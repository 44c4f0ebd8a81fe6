package stagetest

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/pipeline/safetensors"
)

// Families lists the checkpoints of random weights below a directory, which have logits of transformers next to them: one
// at least for every model type.
func Families(dir string) ([]string, error) {
	goldens, err := filepath.Glob(filepath.Join(dir, "*", "golden.safetensors"))
	if err == nil && len(goldens) == 0 {
		err = fmt.Errorf("%s holds no checkpoints", dir)
	}
	names := make([]string, 0, len(goldens))
	for _, g := range goldens {
		names = append(names, filepath.Base(filepath.Dir(g)))
	}
	return names, err
}

// Golden is an output that transformers computed in float32: Logits [len(IDs), vocabulary].
type Golden struct {
	IDs    []int32
	Logits []float32
}

// ReadGolden reads ids_N and logits_N of a golden file.
func ReadGolden(path, n string) (g Golden, err error) {
	err = entries(path, func(name string, size int, raw []byte) {
		switch name {
		case "ids_" + n:
			for ; len(raw) > 0; raw = raw[size:] {
				g.IDs = append(g.IDs, int32(binary.LittleEndian.Uint32(raw)))
			}
		case "logits_" + n:
			g.Logits = floats(raw)
		}
	})
	if err == nil && (len(g.IDs) == 0 || len(g.Logits) == 0 || len(g.Logits)%len(g.IDs) != 0) {
		err = fmt.Errorf("%s: %d logits for %d ids", path, len(g.Logits), len(g.IDs))
	}
	return g, err
}

// ReadStepwise reads the logits that transformers computed for the second ids one by one after the first 32 of them. They are
// nil in a golden file whose logits are the same as those computed at once.
func ReadStepwise(path string) (logits []float32, err error) {
	err = entries(path, func(name string, _ int, raw []byte) {
		if name == "logits_decode" {
			logits = floats(raw)
		}
	})
	return logits, err
}

// entries calls f with the tensors of a safetensors file and the sizes of their elements.
func entries(path string, f func(name string, size int, raw []byte)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	h, err := safetensors.ParseHeader(b, int64(len(b)))
	if err != nil {
		return err
	}
	for _, e := range h.Entries {
		f(e.Name, int(e.DType.Size()), b[e.Offset:e.Offset+e.Size])
	}
	return nil
}

func floats(raw []byte) (x []float32) {
	for ; len(raw) > 0; raw = raw[4:] {
		x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	return x
}
