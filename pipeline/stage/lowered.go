package stage

import (
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
)

// lowered is the graph of a decoder for the target of a job, whose backends all compute it correctly.
func lowered(job *pipeline.Job, d *arch.Decoder) (*lower.Model, error) {
	context := job.Recipe.Target.Context
	if context > d.MaxPositions {
		return nil, job.Recipe.Errorf("target.context", "the checkpoint has %d positions, fewer than %d", d.MaxPositions, context)
	}
	target, err := lower.TargetOf(job.Recipe.Target.Engine)
	if err != nil {
		return nil, err
	}
	targeted, err := profiles(job.Recipe)
	if err != nil {
		return nil, err
	}
	m, err := lower.Classic(d, lower.Options{Context: context})
	if err != nil {
		return nil, err
	}
	return m, checkBackends(targeted, &m.Features, target.Minimum)
}
