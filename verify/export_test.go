package verify

import "context"

// Evaluate measures without checking anything.
func Evaluate(ctx context.Context, s *Subject) (*Evaluation, error) { return evaluate(ctx, s) }

// WindowsOfText are the contexts that are evaluated.
func (s *Subject) WindowsOfText() ([][]int32, error) { return s.windows() }
