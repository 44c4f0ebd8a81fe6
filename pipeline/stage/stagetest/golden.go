package stagetest

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"github.com/llmexport/llmexport/pipeline/safetensors"
)

// Families are checkpoints of random weights below pipeline/arch/testdata, one for every feature of the described
// families.
var Families = []string{"llama", "llama-bias", "llama-linear-rope", "llama3-rope", "qwen2-tied", "qwen2-untied", "qwen3-tied", "qwen3-untied"}

// Golden is an output that transformers computed in float32: Logits [len(IDs), vocabulary].
type Golden struct {
	IDs    []int32
	Logits []float32
}

// ReadGolden reads ids_N and logits_N of a golden file.
func ReadGolden(path, n string) (Golden, error) {
	var g Golden
	b, err := os.ReadFile(path)
	if err != nil {
		return g, err
	}
	h, err := safetensors.ParseHeader(b, int64(len(b)))
	if err != nil {
		return g, err
	}
	for _, e := range h.Entries {
		raw := b[e.Offset : e.Offset+e.Size]
		switch e.Name {
		case "ids_" + n:
			for w := int(e.DType.Size()); len(raw) > 0; raw = raw[w:] {
				g.IDs = append(g.IDs, int32(binary.LittleEndian.Uint32(raw)))
			}
		case "logits_" + n:
			for ; len(raw) > 0; raw = raw[4:] {
				g.Logits = append(g.Logits, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
			}
		}
	}
	if len(g.IDs) == 0 || len(g.Logits)%len(g.IDs) != 0 {
		return g, fmt.Errorf("%s: %d logits for %d ids", path, len(g.Logits), len(g.IDs))
	}
	return g, nil
}
