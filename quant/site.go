package quant

import "github.com/llmexport/llmexport/runtime/kernel"

// Site is a place of a model where channels can be scaled without changing what the model computes: the producer of
// a vector is divided, channel by channel, by the scales that multiply the matrices that read it.
type Site struct {
	// Name is for reports, for example "layers.3.mlp.down".
	Name string
	// Channels is the number of independent scales. The channel of column j of the consumers is Of[j], or j if Of is
	// nil: the columns of o_proj that belong to the query heads of one key-value head share the scales of that head.
	Channels int
	Of       []int
	// Consumers read the vector: matrices [rows, cols] whose columns are multiplied, or samples of their rows. They are
	// copies that a Folder must not change.
	Consumers []Matrix
	// Weights is the number of rows of the model that a row of each consumer represents; nil means 1 each.
	Weights []float64
	// Specs holds the spec of each consumer.
	Specs []Spec
	// Stats are the statistics of the vector in the float model.
	Stats *Stats
}

// Scaling is what a [Folder] chose for a site.
type Scaling struct {
	// Channels are the scales, positive and finite, one for every channel of the site; nil leaves the site alone.
	Channels []float32
	// Before and After are the losses of storing the consumers without and with the scales: the sum over consumers
	// of tr(dW H dWᵀ), dW the error of the stored matrix and H the Hessian. Both are 0 where nothing was measured.
	Before, After float64
}

// Column returns the scale of column j.
func (s *Site) Column(scale []float32, j int) float32 {
	if s.Of != nil {
		j = s.Of[j]
	}
	return scale[j]
}

// Scaled returns the site with scales folded in: columns of the consumers times the scale of their channel, and
// statistics of the vector divided by it. Errors keep their size: with D = diag(scale), tr(E D⁻¹ H D⁻¹ Eᵀ) of an
// error E of the scaled matrix is tr(dW H dWᵀ) of the corresponding error dW = E D⁻¹ of the original matrix.
func (s *Site) Scaled(scale []float32, threads int) *Site {
	n := s.Stats.Cols
	column, inverse := make([]float32, n), make([]float32, n)
	for j := range n {
		column[j] = s.Column(scale, j)
		inverse[j] = 1 / column[j]
	}
	t := *s
	t.Consumers = make([]Matrix, len(s.Consumers))
	for i, c := range s.Consumers {
		t.Consumers[i] = Matrix{c.Rows, c.Cols, make([]float32, len(c.Data))}
		kernel.Parallel(threads, c.Rows, func(lo, hi int) {
			for r := lo; r < hi; r++ {
				kernel.Mul(t.Consumers[i].Row(r), c.Row(r), column)
			}
		})
	}
	t.Stats = &Stats{Cols: n, Tokens: s.Stats.Tokens, Hessian: make([]float32, n*n)}
	kernel.Parallel(threads, n, func(lo, hi int) {
		both := make([]float32, n)
		for i := lo; i < hi; i++ {
			// Multiply both factors first: their product is the same for rows and columns, so symmetry is kept.
			for j, v := range inverse {
				both[j] = v * inverse[i]
			}
			kernel.Mul(t.Stats.Hessian[i*n:(i+1)*n], s.Stats.Hessian[i*n:(i+1)*n], both)
		}
	})
	return &t
}
