package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime"
)

// Compare measures packages against one source on the same windows, without checking anything. The results equal those of
// separate evaluations, but the source is computed once for all packages. All packages share the memory of the options.
// Packages whose tokenizers cut the text differently, or whose vocabularies differ, cannot be compared: that is an error
// that names two of them.
func Compare(ctx context.Context, source *Source, packages []*runtime.Package, o Options) ([]*Evaluation, error) {
	if len(packages) == 0 {
		return nil, nil
	}
	o.Memory /= int64(len(packages))
	subjects := make([]*Subject, len(packages))
	var windows [][]int32
	for i, p := range packages {
		s := &Subject{Package: p, Source: source, Options: o}
		subjects[i] = s
		w, err := s.windows()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Dir, err)
		}
		if i == 0 {
			windows = w
		}
		first := packages[0]
		switch {
		case p.Vocabulary() != first.Vocabulary():
			return nil, fmt.Errorf("%s has a vocabulary of %d, but %s has one of %d", first.Dir, first.Vocabulary(), p.Dir, p.Vocabulary())
		case !slices.EqualFunc(w, windows, slices.Equal):
			return nil, fmt.Errorf("the tokenizers of %s and %s encode the text differently", first.Dir, p.Dir)
		}
	}
	ev, err := newEvaluator(subjects)
	if err != nil {
		return nil, err
	}
	if err := ev.run(ctx); err != nil {
		return nil, err
	}
	evaluations := make([]*Evaluation, len(subjects))
	for i, c := range ev.candidates {
		evaluations[i] = c.Evaluation
	}
	return evaluations, nil
}
