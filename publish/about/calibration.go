package about

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/llmexport/llmexport/internal/sheet"
)

// Calibration describes the text that the codes of a package were chosen on, and the errors of its matrices.
type Calibration struct {
	// Text is the digest of the tokens; Tokens is the number of them used for statistics.
	Text    string            `json:"text"`
	Tokens  int               `json:"tokens"`
	Domains []CalibrationText `json:"domains"`
	// Shown are the pictures and clips that the model was shown; absent without any.
	Shown []CalibrationShown `json:"shown,omitempty"`
	// PredictedKL is the divergence predicted by the allocation of a budget, 0 without one; ProbeKL was measured after
	// encoding. Both are in nats, on ProbeTokens tokens of the same text that statistics did not use.
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

// CalibrationShown is a source of pictures or clips.
type CalibrationShown struct {
	// Kind is "pictures" or "clips".
	Kind string `json:"kind"`
	Name string `json:"name"`
	// SHA256 is that of the Parquet file, or of the listing of the files of a folder that were used.
	SHA256 string `json:"sha256"`
	// Files were there, and Used of them calibrated the model.
	Files int `json:"files"`
	Used  int `json:"used"`
	// ProbeKL is the divergence in nats on prompts with further files, Probe of them, over the ProbeTokens tokens after these; ProbeRows the
	// relative squared error of what the tower makes of them.
	ProbeKL     float64 `json:"probe_kl"`
	ProbeRows   float64 `json:"probe_rows"`
	Probe       int     `json:"probe"`
	ProbeTokens int     `json:"probe_tokens"`
}

// Saw reports whether the model was shown something of a kind.
func (c *Calibration) Saw(kind string) bool {
	return slices.ContainsFunc(c.Shown, func(s CalibrationShown) bool { return s.Kind == kind })
}

// OpError is the error of one encoded matrix.
type OpError struct {
	Tensor string `json:"tensor"`
	Spec   string `json:"spec"`
	// Tokens is the number of tokens of the text that reach the matrix: for an expert those that are routed to it.
	Tokens int64 `json:"tokens,omitempty"`
	// WeightError and OutputError are relative squared errors, of the weights and of the op's outputs over the text.
	WeightError float64 `json:"weight_error"`
	OutputError float64 `json:"output_error"`
	// Dead is the number of input columns that were always 0.
	Dead int `json:"dead,omitempty"`
}

// Folding is a place where channel scales were moved between matrices, with the relative reduction of the loss.
type Folding struct {
	Site   string  `json:"site"`
	Method string  `json:"method"`
	Gain   float64 `json:"gain"`
}

// shownOps is the number of matrices printed to a terminal; the file lists all of them.
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
	for _, s := range c.Shown {
		shown := sheet.New("calibrated on "+s.Kind, ">used", ">of", ">divergence on prompts with others, nats", ">squared error of their rows")
		shown.Row(s.Name, s.Used, s.Files, number(s.ProbeKL), number(s.ProbeRows))
		if err := shown.Write(w, false); err != nil {
			return err
		}
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
	ops := sheet.New(fmt.Sprintf("largest errors of %d matrices", len(c.Ops)), "storage", ">tokens", ">output error", ">weight error", ">dead columns")
	for _, o := range worst[:min(shownOps, len(worst))] {
		ops.Row(o.Tensor, o.Spec, o.Tokens, number(o.OutputError), number(o.WeightError), o.Dead)
	}
	return ops.Write(w, false)
}
