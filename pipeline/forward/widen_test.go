package forward

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// The package's own widening and the kernel's, written apart, agree on every number of 16 bits and on samples of wider ones.
func TestWiden(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, dtype := range []tensor.DType{tensor.BF16, tensor.F16, tensor.F32, tensor.F64} {
		const n = 1 << 16
		src := make([]byte, n*int(dtype.Size()))
		for i := range n {
			switch at := src[i*int(dtype.Size()):]; dtype.Size() {
			case 2:
				binary.LittleEndian.PutUint16(at, uint16(i))
			case 4:
				binary.LittleEndian.PutUint32(at, r.Uint32())
			case 8: // around the range of a float32
				binary.LittleEndian.PutUint64(at, math.Float64bits(math.Ldexp(r.NormFloat64(), r.IntN(400)-200)))
			}
		}
		want, got := make([]float32, n), make([]float32, n)
		if err := kernel.ToF32(want, src, dtype); err != nil {
			t.Fatal(err)
		}
		if err := widen(got, src, dtype); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !(got[i] != got[i] && want[i] != want[i]) {
				t.Fatalf("%s, value %d: %g, the kernel has %g", dtype, i, got[i], want[i])
			}
		}
	}
	if err := widen(nil, nil, tensor.I32); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("integers: %v", err)
	}
}

// The functions of runtime/kernel that the package uses are those that its documentation names.
func TestShared(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("model.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, _, _ = bytes.Cut(doc, []byte("\npackage "))
	// Vector arithmetic that the documentation calls so, forms of what it names, and what computes nothing.
	named := map[string]string{
		"Add": "sums", "Mul": "products and", "Scale": "scales of vectors", "Copy": "copies", "RMSNormRows": "RMSNorm",
		"SincosLimit": "Sincos", "PanelRows": "Packed",
		"HasDevice": "Offload", "Product": "Offload", "Part": "Offload", "Factor": "Offload", "ByRow": "Offload", "ByPosition": "Offload", "ByPanel": "Offload",
		"AddParts": "Offload", "NewVersion": "Offload", "Parallel": "", "NonFinite": "", "Finite": "", "Floats": "", "Scratch": "", "Room": "",
		"Step": "steps", "AddStep": "steps", "NormStep": "steps", "LinearStep": "steps", "RotateStep": "steps",
		"AttendStep": "steps", "GateStep": "steps", "SigmoidStep": "steps",
		"ConvolveStep": "steps", "RecurrenceStep": "steps", "ExpertsStep": "steps", "Vector": "steps",
		"NormBackStep": "steps", "AttendBackStep": "steps", "GateBackStep": "steps", "ExpertsBackStep": "steps", "Carried": "steps",
		"Moment": "steps", "Settle": "Offload",
		"Unweighted": "Routing", "ScoreSoftmax": "Routing", "ScoreSigmoid": "Routing", "ScoreTopKSoftmax": "Routing",
	}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`kernel\.([A-Z]\w*)`)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range used.FindAllSubmatch(b, -1) {
			word, ok := named[string(m[1])]
			if !ok {
				word = string(m[1])
			}
			if !bytes.Contains(doc, []byte(word)) {
				t.Errorf("%s uses kernel.%s, which the documentation of the package does not name", name, m[1])
			}
		}
	}
}

// A call that is cancelled while it widens a matrix leaves the matrix to the next call.
func TestKeptAfterCancel(t *testing.T) {
	t.Parallel()
	m := openModel(t, filepath.Join(familiesDir, "qwen3-tied"), 1)
	m.Keep(m.Weights().All)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, w := range m.matrices {
		if p, err := m.kept(ctx, w); p != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: cancelled: %v, %v", w.Tensor, p, err)
		}
		if p, err := m.kept(t.Context(), w); p == nil || err != nil {
			t.Errorf("%s: the call after it: %v", w.Tensor, err)
		}
	}
}
