package quant

import (
	"cmp"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Stats holds the calibration statistics of the inputs of an op: x of the float model, and x̂ of the model whose
// earlier ops are already quantized.
type Stats struct {
	// Cols is the number of input columns.
	Cols int
	// Tokens is the number of inputs.
	Tokens int64
	// Hessian is the mean over tokens of x̂ x̂ᵀ, [Cols, Cols], row-major, symmetric, both halves filled. All values are
	// finite.
	Hessian []float32
	// Version names the content of Hessian for devices, see [kernel.NewVersion]; 0 if it has no name.
	Version uint64
	// Cross is the mean over tokens of x x̂ᵀ, [Cols, Cols]: row i is x_i times x̂. It is nil where x and x̂ are the same.
	Cross []float32
	// Residue, for a matrix of so many rows whose outputs are added to a vector, is what an [Aimer] takes, [rows, Cols]; or nil.
	Residue []float32
}

// Factor returns the Hessian as the right-hand side of a [kernel.Product]. Without a version it has a new name.
func (s *Stats) Factor() kernel.Factor {
	return kernel.Factor{Data: s.Hessian, Layout: kernel.ByPosition, Stride: s.Cols, Version: cmp.Or(s.Version, kernel.NewVersion())}
}

// Diagonal returns the diagonal of the Hessian: the mean square of every column.
func (s *Stats) Diagonal() []float32 {
	d := make([]float32, s.Cols)
	for i := range d {
		d[i] = s.Hessian[i*s.Cols+i]
	}
	return d
}
