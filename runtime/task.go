package runtime

import (
	"slices"

	"github.com/llmexport/llmexport/runtime/mnn"
)

// Task is what the graph of a package computes.
type Task string

// The tasks.
const (
	// Generate: logits, from which texts are continued.
	Generate Task = "generate"
	// Embed: the vector of a text.
	Embed Task = "embed"
	// Rerank: the score of a document for a query.
	Rerank Task = "rerank"
)

// Task returns what the graph of the package computes.
func (p *Package) Task() Task {
	g := p.Text().Graph
	if !slices.Contains(g.Tensors, mnn.SentenceOutput) {
		return Generate
	}
	for i := range g.Ops {
		if in, ok := g.Ops[i].Param.(*mnn.Input); ok && g.Ops[i].Name == "attention_mask" && in.OfTexts() {
			return Rerank
		}
	}
	return Embed
}
