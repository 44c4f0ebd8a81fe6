// Package stage holds the stages of a job, one file each, and the table that says in which order they run. A
// stage's options are its own exported fields; its constructor in the table holds their defaults.
package stage

import (
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/recipes"
)

// table lists the stages in the order in which they run.
var table = []struct {
	// section names the options in a recipe; empty for a stage that has none.
	section string
	doc     string
	new     func() pipeline.Stage
}{
	{"fetch", "find or download the checkpoint and digest its files", func() pipeline.Stage { return NewFetch() }},
	{"rewrite", "describe the model, lower it to a graph, convert the tokenizer and its chat template", func() pipeline.Stage { return &Rewrite{} }},
	{"calibrate", "gather the text on which the model is watched", func() pipeline.Stage { return NewCalibrate() }},
	{"", "measure how much the storage of every matrix matters, and share a budget out", func() pipeline.Stage { return &Allocate{} }},
	{"quantize", "lay out, quantize and write the weights", func() pipeline.Stage { return NewQuantize() }},
	{"verify", "run the package and compare it with the source", func() pipeline.Stage { return NewVerify() }},
	{"publish", "put the package where users find it", func() pipeline.Stage { return &Publish{} }},
}

// Sections lists the names of the recipe sections that stages own.
func Sections() []string {
	var names []string
	for _, t := range table {
		if t.section != "" {
			names = append(names, t.section)
		}
	}
	return names
}

// Options returns the options of every section with their defaults, for schemas.
func Options() map[string]any {
	all := map[string]any{}
	for _, t := range table {
		if t.section != "" {
			all[t.section] = t.new()
		}
	}
	return all
}

// New makes the stages of a recipe and decodes their options, each at its place in the recipe.
func New(r *recipes.Recipe) ([]pipeline.Stage, error) {
	var stages []pipeline.Stage
	for _, t := range table {
		s := t.new()
		if t.section != "" {
			if err := r.Stages[t.section].Decode(s); err != nil {
				return nil, err
			}
		}
		stages = append(stages, s)
	}
	return stages, nil
}

// Find returns the stage of a type among those that New made.
func Find[S pipeline.Stage](stages []pipeline.Stage) S {
	for _, s := range stages {
		if x, ok := s.(S); ok {
			return x
		}
	}
	panic("internal error: no such stage")
}

// Before returns the stages that come before s.
func Before(stages []pipeline.Stage, s pipeline.Stage) []pipeline.Stage {
	for i := range stages {
		if stages[i] == s {
			return stages[:i]
		}
	}
	return stages
}

// Decoded maps sections to the options that stages hold, for the effective recipe.
func Decoded(stages []pipeline.Stage) map[string]any {
	all := map[string]any{}
	for i, t := range table {
		if t.section != "" {
			all[t.section] = stages[i]
		}
	}
	return all
}
