package verify

import (
	"context"

	"github.com/llmexport/llmexport/runtime"
)

// activations: no value that a device computes in fp16 comes near the largest half, 65504, unless the package
// requires more precision.
type activations struct{}

func (activations) String() string { return "activations" }

func (activations) Hint(map[string]float64) string {
	return "the checkpoint itself produces these values; set \"precision\": \"normal\" in the package's config.json to keep devices from computing in fp16"
}

// maxActivation leaves a factor of two for texts with larger activations than the evaluated one.
const maxActivation = 3e4

// activations returns an evaluation with the largest activation.
func (s *Subject) activations(ctx context.Context) (*Evaluation, error) {
	if s.Package.Task() == runtime.Generate {
		return s.evaluation(ctx)
	}
	v, err := s.measure(ctx)
	if err != nil {
		return nil, err
	}
	return &v.Evaluation, nil
}

func (activations) Check(ctx context.Context, s *Subject) (Finding, error) {
	e, err := s.activations(ctx)
	if err != nil {
		return Finding{}, err
	}
	f := Finding{
		Passed:   e.LargestActivation <= maxActivation || s.Package.Config.Precision != "low",
		Headline: &Headline{Value: e.LargestActivation},
		Value:    map[string]float64{"largest": e.LargestActivation, "limit": maxActivation},
	}
	if !f.Passed {
		return f.say("%s reaches %.3g, which may overflow on fp16 devices: the package needs precision: normal", e.LargestOp, e.LargestActivation)
	}
	return f.say("largest activation %.4g, at %s; precision %s", e.LargestActivation, e.LargestOp, s.Package.Config.Precision)
}
