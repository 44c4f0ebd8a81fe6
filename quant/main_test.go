package quant

import (
	"math"
	"os"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestMain lets memory whose values nothing may depend on have some that spread.
func TestMain(m *testing.M) {
	kernel.Arbitrary = func(x []float32) {
		for i := 0; i < len(x); i += 97 {
			x[i] = float32(math.NaN())
		}
	}
	os.Exit(m.Run())
}
