// Package kerneltest is for tests of packages that compute with package kernel.
package kerneltest

import (
	"math"
	"os"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Main runs the tests of a package, in which memory of [kernel.Scratch], whose values nothing may depend on, has some that spread.
func Main(m *testing.M) {
	kernel.Arbitrary = func(x []float32) {
		for i := 0; i < len(x); i += 97 {
			x[i] = float32(math.NaN())
		}
	}
	os.Exit(m.Run())
}
