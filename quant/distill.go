package quant

import "fmt"

// Distill tunes scales, zero terms and norms of a finished model towards the outputs of the float model, leaving codes
// unchanged (the end-to-end stage of EfficientQAT, arXiv 2407.11062). It suits models of up to about two billion
// weights: every step is a forward and a backward pass. pipeline/calibrate does the work.
type Distill struct {
	// Steps of Adam, each on Tokens of calibration text.
	Steps  int `json:"steps" jsonschema:"minimum=1,maximum=100000" jsonschema_description:"Steps of gradient descent."`
	Tokens int `json:"tokens" jsonschema:"minimum=16,maximum=1048576" jsonschema_description:"Tokens of a step, in whole windows."`
	// Rate is the relative change of a scale in the first step; it falls to 0 along half a cosine.
	Rate float64 `json:"rate" jsonschema_description:"Relative change of a scale in the first step."`
}

// NewDistill returns the defaults.
func NewDistill() *Distill { return &Distill{Steps: 48, Tokens: 2048, Rate: 1e-3} }

// Name implements Method.
func (*Distill) Name() string { return "distill" }

// Closeness implements Method: scales and norms change after codes are chosen.
func (*Distill) Closeness() Closeness { return Closeness{Weights: Fitted, Floats: Rewritten} }

// Needs implements Method.
func (*Distill) Needs() Needs { return Gradients }

// Validate implements Method.
func (d *Distill) Validate() error {
	switch {
	case d.Steps < 1 || d.Steps > 100000:
		return fmt.Errorf("steps must be from 1 to 100000, not %d", d.Steps)
	case d.Tokens < 16 || d.Tokens > 1<<20:
		return fmt.Errorf("tokens must be from 16 to 1048576, not %d", d.Tokens)
	case !(d.Rate > 0 && d.Rate <= 0.1):
		return fmt.Errorf("rate must be more than 0 and at most 0.1, not %v", d.Rate)
	}
	return nil
}
