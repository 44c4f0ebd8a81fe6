package stage

import (
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
)

// LowerWith replaces the lowering of the run's model.
func (r *Run) LowerWith(f func(*arch.Model, lower.Options) (*lower.Model, error)) { r.lower = f }

// SampleTrials makes trials of models with more than whole layers encode about so many of these.
func (r *Run) SampleTrials(whole, sampled int) { r.trials = trialSize{whole, sampled} }
