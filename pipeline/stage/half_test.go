package stage_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// halfRecord is what record.py of testdata/half writes of a package: a prompt and single tokens, and the checksums of their logits.
type halfRecord struct {
	Checkpoint string   `json:"checkpoint"`
	Bits       int      `json:"bits"`
	Precision  string   `json:"precision"`
	Memory     string   `json:"memory"`
	Prompt     int      `json:"prompt"`
	IDs        []int32  `json:"ids"`
	Rows       []uint32 `json:"rows"`
}

// In half precision, and with int8 activations, the runtime computes the logits of the released engine on arm64, to the last bit. `make half`
// compares what it records then.
func TestHalf(t *testing.T) {
	t.Parallel()
	name := os.Getenv("LLMEXPORT_HALF")
	if name == "" {
		name = "testdata/half/recorded.json"
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var records []halfRecord
	if err := json.Unmarshal(b, &records); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		t.Run(fmt.Sprintf("%s-%d-%s-%s", r.Checkpoint, r.Bits, r.Precision, r.Memory), func(t *testing.T) {
			if testing.Short() && (r.Checkpoint != "llama" || r.Bits != 8) {
				t.Skip("long; make test-all runs it")
			}
			t.Parallel()
			if wrong := r.wrong(t); len(wrong) > 0 {
				t.Errorf("rows %v of the logits are not the engine's", wrong)
			}
		})
	}
}

// wrong lists the rows that differ.
func (r *halfRecord) wrong(t *testing.T) (rows []int) {
	t.Helper()
	dir := families + r.Checkpoint
	if r.Checkpoint == "tiny-qwen3" {
		dir = tiny
	}
	w := newWork(t, dir, fmt.Sprintf("target: {engine: \"3.5\"}\nquantize: {method: rtn, bits: %d, block: auto}\nverify: {enabled: false}", r.Bits))
	w.must(t)
	p, err := runtime.Open(w.out())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	o := runtime.Options{Half: r.Precision == "low", DynamicOption: p.Config.DynamicOption}
	if r.Memory == "low" {
		o.Mode = backend.Int8
	}
	if !o.Half {
		o.Arm = kernel.ArmI8MM
	}
	s, err := runtime.NewSession(p, cpu.Backend{}, o)
	if err != nil {
		t.Fatal(err)
	}
	var logits []float32
	for at := 0; at < len(r.IDs); {
		n := max(r.Prompt-at, 1)
		l, err := s.Forward(t.Context(), r.IDs[at:at+n])
		if err != nil {
			t.Fatal(err)
		}
		logits, at = append(logits, l...), at+n
	}
	width := len(logits) / len(r.Rows)
	for i, want := range r.Rows {
		var b []byte
		for _, v := range logits[i*width:][:width] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v+0)) // without the sign of a zero
		}
		if crc32.ChecksumIEEE(b) != want {
			rows = append(rows, i)
		}
	}
	return rows
}
