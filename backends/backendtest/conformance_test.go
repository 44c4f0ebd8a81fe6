// Package backendtest is the conformance suite of backends: it holds every backend to the meaning of every op,
// computed naively in float64, and to the promises on which a runtime relies. Results do not depend on the number of
// threads or on how a prompt is cut into calls; a graph that makes no sense is an error and never a panic.
package backendtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// all are the backends under test.
var all = []backend.Backend{generic.Backend{}, cpu.Backend{}}

// TestConformance runs the suite over each backend. Ops that its Capabilities do not list are skipped.
func TestConformance(t *testing.T) {
	for _, be := range all {
		t.Run(be.Name(), func(t *testing.T) { testBackend(t, be) })
	}
}

func testBackend(t *testing.T, be backend.Backend) {
	if be.Name() == "" || len(be.Capabilities().Ops) == 0 || !slices.Contains(be.Capabilities().Modes, backend.Float) {
		t.Fatalf("%q has no name, no ops, or no float mode: %+v", be.Name(), be.Capabilities())
	}
	t.Run("shapes", func(t *testing.T) { testShapes(t, be) })
	t.Run("elementwise", func(t *testing.T) { testElementwise(t, be) })
	t.Run("unary", func(t *testing.T) { testUnary(t, be) })
	t.Run("types", func(t *testing.T) { testTypes(t, be) })
	t.Run("integers", func(t *testing.T) { testIntegers(t, be) })
	t.Run("norm", func(t *testing.T) { testNorm(t, be) })
	t.Run("linear", func(t *testing.T) { testLinear(t, be) })
	t.Run("attention", func(t *testing.T) { testAttention(t, be) })
	t.Run("masks", func(t *testing.T) { testMasks(t, be) })
	t.Run("whole texts", func(t *testing.T) { testWholeTexts(t, be) })
	t.Run("rope", func(t *testing.T) { testRoPE(t, be) })
	t.Run("inputs", func(t *testing.T) { testInputs(t, be) })
	t.Run("sequences", func(t *testing.T) { testSequences(t, be) })
	t.Run("products", func(t *testing.T) { testMatMul(t, be) })
	t.Run("recurrence", func(t *testing.T) { testRecurrence(t, be) })
	t.Run("experts", func(t *testing.T) { testExperts(t, be) })
	t.Run("hybrid", func(t *testing.T) { testHybrid(t, be) })
	t.Run("decoder", func(t *testing.T) { testDecoder(t, be) })
	t.Run("refuses", func(t *testing.T) { testRefuses(t, be) })
}

// needs skips a test of ops that the backend does not claim to run.
func needs(t *testing.T, be backend.Backend, ops ...mnn.OpType) {
	t.Helper()
	for _, op := range ops {
		if !slices.Contains(be.Capabilities().Ops, op) {
			t.Skipf("%s does not run %v", be.Name(), op)
		}
	}
}

// bound is the relative error that a float32 result may have: sums of some hundred products, each rounded to 24
// bits, and an exponential.
const bound = 2e-5

// near compares with a bound relative to the largest magnitude of what is wanted.
func near(t *testing.T, got []float32, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	top := 1e-3
	for _, w := range want {
		top = max(top, math.Abs(w))
	}
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= bound*top) {
			t.Fatalf("value %d is %g, want %g", i, got[i], w)
		}
	}
}

// random values of a normal distribution.
func random(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 77))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// iota is 0, 1, 2, ...
func iota32(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i)
	}
	return v
}

func wide(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}
