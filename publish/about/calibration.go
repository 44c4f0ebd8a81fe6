package about

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/llmexport/llmexport/internal/sheet"
)

// Calibration says on which text the codes of a package were chosen, and how close its matrices came.
type Calibration struct {
	// Text is the digest of the tokens, Tokens how many of them statistics were taken from.
	Text    string            `json:"text"`
	Tokens  int               `json:"tokens"`
	Domains []CalibrationText `json:"domains"`
	// PredictedKL is the divergence that the allocation of a budget foresaw, 0 without one; ProbeKL was measured after
	// encoding, both in nats on ProbeTokens of the same text that no statistics saw.
	PredictedKL float64   `json:"predicted_kl,omitempty"`
	ProbeKL     float64   `json:"probe_kl"`
	ProbeTokens int       `json:"probe_tokens"`
	Ops         []OpError `json:"ops"`
	Foldings    []Folding `json:"foldings,omitempty"`
}

// CalibrationText is a source of calibration text.
type CalibrationText struct {
	Name    string  `json:"name"`
	SHA256  string  `json:"sha256"`
	Windows int     `json:"windows"`
	Tokens  int     `json:"tokens"`
	Weight  float64 `json:"weight"`
}

// OpError is what encoding left of one matrix.
type OpError struct {
	Tensor string `json:"tensor"`
	Spec   string `json:"spec"`
	// WeightError and OutputError are relative squared errors, of the weights and of the op's outputs over the text.
	WeightError float64 `json:"weight_error"`
	OutputError float64 `json:"output_error"`
	// Dead is the number of input columns that were always 0.
	Dead int `json:"dead,omitempty"`
}

// Folding is a place where scales of channels moved between matrices, and the part of the loss that it removed.
type Folding struct {
	Site   string  `json:"site"`
	Method string  `json:"method"`
	Gain   float64 `json:"gain"`
}

// shownOps is how many matrices a terminal sees; the file has all of them.
const shownOps = 8

func (c *Calibration) write(w io.Writer) error {
	if c == nil {
		return nil
	}
	text := sheet.New("calibrated on", ">windows", ">tokens", ">weight")
	for _, d := range c.Domains {
		text.Row(d.Name, d.Windows, d.Tokens, number(d.Weight))
	}
	if err := text.Write(w, false); err != nil {
		return err
	}
	kl := sheet.New("divergence on unseen calibration text", ">nats")
	if c.PredictedKL > 0 {
		kl.Row("predicted by the allocation", number(c.PredictedKL))
	}
	kl.Row(fmt.Sprintf("measured on %d tokens", c.ProbeTokens), number(c.ProbeKL))
	if err := kl.Write(w, false); err != nil {
		return err
	}
	worst := slices.Clone(c.Ops)
	slices.SortStableFunc(worst, func(a, b OpError) int { return cmp.Compare(b.OutputError, a.OutputError) })
	ops := sheet.New(fmt.Sprintf("largest errors of %d matrices", len(c.Ops)), "storage", ">output error", ">weight error", ">dead columns")
	for _, o := range worst[:min(shownOps, len(worst))] {
		ops.Row(o.Tensor, o.Spec, number(o.OutputError), number(o.WeightError), o.Dead)
	}
	return ops.Write(w, false)
}
