package verify

import "context"

// activations: nothing a device computes in fp16 comes near the largest half, 65504, unless the package asks for
// more precision.
type activations struct{}

func (activations) String() string { return "activations" }

func (activations) Hint() string {
	return "the values are the checkpoint's own; \"precision\": \"normal\" in the package's config.json keeps devices from computing in fp16"
}

// maxActivation leaves a factor of two for texts that excite the model more than the evaluated one.
const maxActivation = 3e4

func (activations) Check(ctx context.Context, s *Subject) (Finding, error) {
	e, err := s.evaluation(ctx)
	if err != nil {
		return Finding{}, err
	}
	f := Finding{
		Passed:   e.LargestActivation <= maxActivation || s.Package.Config.Precision != "low",
		Headline: &Headline{Value: e.LargestActivation},
		Value:    map[string]float64{"largest": e.LargestActivation, "limit": maxActivation},
	}
	if !f.Passed {
		return f.say("%s reaches %.3g, which fp16 devices may overflow on: the package needs precision: normal", e.LargestOp, e.LargestActivation)
	}
	return f.say("largest activation %.4g, at %s; precision %s", e.LargestActivation, e.LargestOp, s.Package.Config.Precision)
}
