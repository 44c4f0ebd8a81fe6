package verify

import "context"

// Evaluate measures without checking anything.
func Evaluate(ctx context.Context, s *Subject) (*Evaluation, error) {
	s.eval = nil
	return s.evaluation(ctx)
}

// WindowsOfText are the contexts that are evaluated.
func (s *Subject) WindowsOfText() ([][]int32, error) { return s.windows() }

// Values are the numbers of all positions.
func (s *Sample) Values() []float64 { return s.values }

// CheckWeights is the check weights alone.
func CheckWeights(ctx context.Context, s *Subject) (Finding, error) {
	return s.Options.Checks.Weights.Check(ctx, s)
}

// AllowNoise sets how many times the divergence of the weights alone the check kl allows.
func (k *KL) AllowNoise(times float64) { k.noise = times }
