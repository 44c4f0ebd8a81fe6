package verify

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/runtime"
)

// activations: the package works where devices compute in half precision, unless it requires more. It is run so, and no value comes near the
// largest half on the rest of the text.
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
		Passed: true, Headline: &Headline{Value: e.LargestActivation}, Value: map[string]float64{"largest": e.LargestActivation, "limit": maxActivation},
	}
	if !s.runsPhone() {
		return f.say("largest activation %.4g, at %s; precision %s", e.LargestActivation, e.LargestOp, s.Package.Config.Precision)
	}
	h, err := s.phone(ctx)
	if err != nil {
		return Finding{}, err
	}
	if !s.runsHalf() {
		with := ""
		if kl, _ := h.arm.KL.Mean(); h.arm.KL.Len() > 0 {
			f.Value["kl_arm_int8"] = kl
			with = fmt.Sprintf(": int8 activations add KL %.2g nats on arm64, on %d tokens", kl, h.tokens)
		}
		return f.say("largest activation %.4g, at %s; precision %s%s", e.LargestActivation, e.LargestOp, s.Package.Config.Precision, with)
	}
	const needs = ": the package needs precision: normal"
	kl, _ := h.half.KL.Mean()
	compared := h.half.KL.Len() > 0
	if compared {
		f.Value["kl_half"], f.Value["kl_half_limit"] = kl, maxHalfKL
	}
	both, _ := h.halfInt8.KL.Mean()
	plain, _ := h.int8.KL.Mean()
	quantized := h.halfInt8.KL.Len() > 0
	if quantized {
		f.Value["kl_half_int8"], f.Value["kl_half_int8_limit"] = both, plain+maxHalfKL
	}
	f.Passed = false
	switch {
	case h.beyond != "":
		return f.say("%s reaches %.3g in fp16, which ends at 65504, on %d tokens"+needs, h.beyond, h.peak, h.tokens)
	case compared && !(kl <= maxHalfKL):
		return f.say("fp16 adds KL %.3g nats on %d tokens"+needs, kl, h.tokens)
	case quantized && !(both <= plain+maxHalfKL):
		return f.say("fp16 with int8 activations has KL %.3g nats on %d tokens, int8 activations alone %.3g"+needs, both, h.tokens, plain)
	case e.LargestActivation > maxActivation:
		return f.say("%s reaches %.3g, which may overflow on fp16 devices"+needs, e.LargestOp, e.LargestActivation)
	}
	f.Passed = true
	if !compared {
		return f.say("largest activation %.4g, at %s; precision low: finite in fp16 on %d tokens", e.LargestActivation, e.LargestOp, h.tokens)
	}
	with := ""
	if quantized {
		with = fmt.Sprintf(", with int8 activations %.2g", both)
	}
	return f.say("largest activation %.4g, at %s; precision low: fp16 adds KL %.2g nats on %d tokens%s", e.LargestActivation, e.LargestOp, kl, h.tokens, with)
}
