package forward

import (
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// gradientTokens is how many tokens are summed before their sum is added to the others: so the order of a sum over tokens does
// not depend on threads.
const gradientTokens = 64

// Norm is y = x / sqrt(mean(x²) + Eps) * Gamma for runs x of as many elements as Gamma has, or separately for the parts of such
// a run and of Gamma; if Centered, mean(x) is subtracted from x first. Beta is added.
type Norm struct {
	// Weight names the tensor of Gamma. Several norms may share it.
	Weight arch.Weight
	// Gamma may be changed at any time.
	Gamma []float32
	// Beta has the length of Gamma, or is nil.
	Beta     []float32
	Eps      float32
	Centered bool

	parts, threads int
}

// readNorm reads the vectors of a norm with read.
func (m *Model) readNorm(d *arch.Norm, read func(arch.Weight) ([]float32, error)) (*Norm, error) {
	n := &Norm{Weight: d.Gamma, Eps: float32(d.Eps), Centered: d.Centered, parts: max(d.Parts, 1), threads: m.threads}
	var err error
	if n.Gamma, err = read(d.Gamma); err == nil && d.Beta.Tensor != "" {
		n.Beta, err = read(d.Beta)
	}
	return n, err
}

// width is how many elements are normalised together.
func (n *Norm) width() int { return len(n.Gamma) / n.parts }

// gains returns the elements of Gamma for row i.
func (n *Norm) gains(i int) (at int, gamma []float32) {
	at = i % n.parts * n.width()
	return at, n.Gamma[at : at+n.width()]
}

// apply normalises all rows of x; dst may be x.
func (n *Norm) apply(dst, x []float32) {
	width := n.width()
	kernel.Parallel(n.threads, rows("Norm", x, width, dst, width), func(lo, hi int) {
		if n.parts == 1 && !n.Centered {
			kernel.RMSNormRows(dst[lo*width:hi*width], x[lo*width:hi*width], n.Gamma, hi-lo, n.Eps)
			return
		}
		for i := lo; i < hi; i++ {
			at, gamma := n.gains(i)
			y, row := dst[i*width:(i+1)*width], x[i*width:(i+1)*width]
			if !n.Centered {
				kernel.RMSNorm(y, row, gamma, n.Eps)
				continue
			}
			mean, r := n.moments(row)
			for j, v := range row {
				y[j] = float32(float64((float64(v)-mean)*r) * float64(gamma[j]))
			}
			if n.Beta != nil {
				kernel.Add(y, y, n.Beta[at:at+width])
			}
		}
	})
}

// moments are the mean of a row and 1/sqrt(variance + Eps). Sums have four lanes.
func (n *Norm) moments(x []float32) (mean, r float64) {
	var sums, squares [4]float64
	for i, v := range x {
		sums[i%4] += float64(v)
	}
	mean = (sums[0] + sums[1] + sums[2] + sums[3]) / float64(len(x))
	for i, v := range x {
		d := float64(v) - mean
		squares[i%4] += float64(d * d)
	}
	return mean, 1 / math.Sqrt((squares[0]+squares[1]+squares[2]+squares[3])/float64(len(x))+float64(n.Eps))
}

// back turns dy, the gradient of the output for the inputs x, into the gradient of the inputs, in place, for tokens of
// width elements. With r = 1/sqrt(mean(x²) + Eps), g = Gamma dy and N the elements that are normalised together,
//
//	dx = r (g - x r² (g·x)/N)
//	dGamma = sum over rows of r x dy
//
// and if Centered, with x and r those after subtraction of the mean, dx minus its own mean.
func (n *Norm) back(x, dy []float32, token int, v Visitor) {
	width := n.width()
	step := gradientTokens * token / width
	count := rows("Norm", x, width, dy, width)
	spans := (count + step - 1) / step
	sums := make([]float64, spans*len(n.Gamma))
	kernel.Parallel(n.threads, spans, func(lo, hi int) {
		for s := lo; s < hi; s++ {
			for i := s * step; i < min((s+1)*step, count); i++ {
				at, gamma := n.gains(i)
				row, d, sum := x[i*width:(i+1)*width], dy[i*width:(i+1)*width], sums[s*len(n.Gamma)+at:][:width]
				if n.Centered {
					n.backCentered(sum, row, d, gamma)
				} else {
					kernel.RMSNormBack(sum, row, d, gamma, n.Eps)
				}
			}
		}
	})
	if v.Norm != nil {
		n.visit(sums, v)
	}
}

// visit shows the gradient of Gamma, of which sums holds the sums over spans of tokens.
func (n *Norm) visit(sums []float64, v Visitor) {
	total := make([]float64, len(n.Gamma))
	for i, g := range sums {
		total[i%len(total)] += g
	}
	v.Norm(n, total)
}

// backCentered is [kernel.RMSNormBack] for a Centered norm.
func (n *Norm) backCentered(sum []float64, x, dy, gamma []float32) {
	mean, r := n.moments(x)
	var all, dots [4]float64
	for i, g := range gamma {
		d := float64(float64(g) * float64(dy[i]))
		all[i%4] += d
		dots[i%4] += float64(d * float64((float64(x[i])-mean)*r))
	}
	width := float64(len(x))
	level, dot := (all[0]+all[1]+all[2]+all[3])/width, (dots[0]+dots[1]+dots[2]+dots[3])/width
	for i, g := range gamma {
		unit, d := float64((float64(x[i])-mean)*r), float64(dy[i])
		sum[i] += float64(unit * d)
		dy[i] = float32(r * (float64(float64(g)*d) - level - float64(unit*dot)))
	}
}
