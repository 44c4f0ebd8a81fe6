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
func CheckWeights(ctx context.Context, s *Subject) (Finding, error) { return weights{}.Check(ctx, s) }
