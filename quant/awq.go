package quant

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// AWQ scales channels by a power of the size of their inputs: those with large inputs get a finer share of their
// block's grid. The scales of a site are
//
//	s_i = sqrt(H_ii)^alpha, divided by the geometric mean of all
//
// with H the Hessian of the float model, H_ii averaged over the columns of a channel, and one alpha of a grid from 0 for
// the site: the one with the least sum over consumers of tr(dW H dWᵀ), where dW is the error of the scaled matrix in its
// stored form. They are accepted if they save more than 1 %.
//
// From "AWQ: Activation-aware Weight Quantization" (MLSys 2024), which uses the mean magnitude of inputs instead of the
// root of their mean square and compares outputs for a few tokens instead of using H.
type AWQ struct {
	// Most is the largest exponent tried, Step the distance between two.
	Most float64 `json:"most" jsonschema_description:"Largest exponent tried, above 0 and at most 1."`
	Step float64 `json:"step" jsonschema_description:"Distance between exponents, from 0.01 to most."`
}

// worthwhile is the largest share of the loss that scales may leave; smaller savings are within the noise of
// a sample of rows.
const worthwhile = 0.99

// NewAWQ returns the defaults.
func NewAWQ() *AWQ { return &AWQ{Most: 0.8, Step: 0.05} }

// Name implements Method.
func (*AWQ) Name() string { return "awq" }

// Closeness implements Method.
func (*AWQ) Closeness() Closeness { return Closeness{Floats: Rewritten} }

// Needs implements Method.
func (*AWQ) Needs() Needs { return Text }

// Validate implements Method.
func (a *AWQ) Validate() error {
	if !(a.Most > 0 && a.Most <= 1) {
		return fmt.Errorf("most must be above 0 and at most 1, not %g", a.Most)
	}
	if !(a.Step >= 0.01 && a.Step <= a.Most) {
		return fmt.Errorf("step must be from 0.01 to %g, not %g", a.Most, a.Step)
	}
	return nil
}

// Fold implements Folder.
func (a *AWQ) Fold(s *Site, q Quantizer, threads int) (Scaling, error) {
	p, err := newProbe(s, q, threads)
	if err != nil {
		return Scaling{}, err
	}
	logs, before, after, err := a.search(p)
	if err != nil {
		return Scaling{}, err
	}
	return accept(logs, before, after), nil
}

// search returns the logarithms of the best scales, whose mean is 0, and the losses without and with them. Without
// inputs or errors all results are 0.
func (a *AWQ) search(p *probe) (logs []float64, before, after float64, err error) {
	size := p.size()
	logs = make([]float64, p.site.Channels)
	if size == nil {
		return logs, 0, 0, nil
	}
	for c, v := range size {
		size[c] = 0.5 * kernel.Log(v)
	}
	center(size)
	if before, err = p.loss(scales(logs), nil); err != nil {
		return nil, 0, 0, err
	}
	after = before
	trial := make([]float64, len(logs))
	// Half a step of room includes a multiple of the step that rounds to slightly more than most.
	for k := 1; before > 0 && float64(float64(k)*a.Step) < a.Most+float64(0.5*a.Step); k++ {
		alpha := min(float64(float64(k)*a.Step), a.Most)
		for c, v := range size {
			trial[c] = alpha * v
		}
		l, err := p.loss(scales(trial), nil)
		if err != nil {
			return nil, 0, 0, err
		}
		if l < after {
			after = l
			copy(logs, trial)
		}
	}
	return logs, before, after, nil
}

// accept converts logarithms to scales if they are worthwhile.
func accept(logs []float64, before, after float64) Scaling {
	if !(after < worthwhile*before) {
		return Scaling{Before: before, After: before}
	}
	return Scaling{Channels: scales(logs), Before: before, After: after}
}

// scales returns the exponentials.
func scales(logs []float64) []float32 {
	s := make([]float32, len(logs))
	for i, v := range logs {
		s[i] = float32(kernel.Exp(v))
	}
	return s
}

// center shifts the mean to 0, so that scales have geometric mean 1.
func center(logs []float64) {
	var sum float64
	for _, v := range logs {
		sum += v
	}
	mean := sum / float64(len(logs))
	for i := range logs {
		logs[i] -= mean
	}
}
