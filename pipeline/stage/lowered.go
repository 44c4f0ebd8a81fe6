package stage

import (
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
)

// lowered is the graph of a decoder for the target of a job.
func lowered(job *pipeline.Job, d *arch.Decoder) (*lower.Model, error) {
	context := job.Recipe.Target.Context
	if context > d.MaxPositions {
		return nil, job.Recipe.Errorf("target.context", "the checkpoint has %d positions, fewer than %d", d.MaxPositions, context)
	}
	return lower.Classic(d, lower.Options{Context: context})
}
