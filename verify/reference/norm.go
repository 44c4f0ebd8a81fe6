package reference

import (
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// norm normalises x in runs of as many elements as the norm has gains, or parts of such a run each for itself, with their
// parts of the gains; dst may be x.
func (m *Model) norm(dst, x []float32, n *arch.Norm) error {
	parts := max(n.Parts, 1)
	gamma, err := m.vector(n.Gamma)
	if err != nil {
		return err
	}
	var beta []float32
	if n.Beta.Tensor != "" {
		if beta, err = m.vector(n.Beta); err != nil {
			return err
		}
	}
	width := len(gamma) / parts
	kernel.Parallel(m.threads, len(x)/width, func(lo, hi int) {
		if parts == 1 && !n.Centered {
			kernel.RMSNormRows(dst[lo*width:hi*width], x[lo*width:hi*width], gamma, hi-lo, float32(n.Eps))
			return
		}
		for i := lo; i < hi; i++ {
			at := i % parts * width
			d, row, g := dst[i*width:(i+1)*width], x[i*width:(i+1)*width], gamma[at:at+width]
			if !n.Centered {
				kernel.RMSNorm(d, row, g, float32(n.Eps))
				continue
			}
			center(d, row, n.Eps)
			kernel.Mul(d, d, g)
			if beta != nil {
				kernel.Add(d, d, beta[at:at+width])
			}
		}
	})
	return nil
}

// center is (x - mean) / sqrt(variance + eps), computed in float64 and rounded once; dst may be x.
func center(dst, x []float32, eps float64) {
	var mean, variance float64
	for _, v := range x {
		mean += float64(v)
	}
	mean /= float64(len(x))
	for _, v := range x {
		d := float64(v) - mean
		variance += float64(d * d)
	}
	inverse := 1 / math.Sqrt(variance/float64(len(x))+eps)
	for i, v := range x {
		dst[i] = float32((float64(v) - mean) * inverse)
	}
}
