package stage

import (
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
)

// LowerWith replaces the lowering of the run's model.
func (r *Run) LowerWith(f func(*arch.Model, lower.Options) (*lower.Model, error)) { r.lower = f }
