package pipeline

import (
	"fmt"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Kind says what an artifact is.
type Kind string

// The kinds of artifacts that stages exchange.
const (
	// Checkpoint is the directory of the source model.
	Checkpoint Kind = "checkpoint"
	// Inputs is a directory of the package's small files that need no weights: tokenizer, facts of the model.
	Inputs Kind = "inputs"
	// Calibration is a directory with the text on which the model is watched.
	Calibration Kind = "calibration"
	// Allocation is a directory with the specs that meet a budget.
	Allocation Kind = "allocation"
	// Codes is a directory with matrices whose codes were chosen with calibration.
	Codes Kind = "codes"
	// Weights is a directory with the graph, the weights and their spans.
	Weights Kind = "weights"
	// Verdict is a directory with the package as it will be published and what was measured of it.
	Verdict Kind = "verdict"
	// Published is a package in its final place.
	Published Kind = "published"
)

// Artifact is anything a stage made. Digest names its content.
type Artifact struct {
	Kind   Kind
	Name   string
	Path   string
	Digest manifest.Digest
	Size   int64
	// Detail is what its maker has to add, for those who know what it is.
	Detail any
}

// Artifacts is what a job has made, in order.
type Artifacts []Artifact

// Add appends an artifact.
func (a *Artifacts) Add(x Artifact) { *a = append(*a, x) }

// One returns the last artifact of a kind; its absence is an error of our own order of stages.
func (a Artifacts) One(k Kind) (Artifact, error) {
	for i := len(a) - 1; i >= 0; i-- {
		if a[i].Kind == k {
			return a[i], nil
		}
	}
	return Artifact{}, fmt.Errorf("internal error: no %s was made", k)
}
