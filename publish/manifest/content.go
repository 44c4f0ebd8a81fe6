package manifest

import (
	"fmt"

	"github.com/llmexport/llmexport/internal/digest"
)

// The roles of the files that decide what a package answers.
const (
	RoleGraph     = "graph"
	RoleWeights   = "weights"
	RoleModel     = "model"
	RoleTokenizer = "tokenizer"
)

// Content digests the names and digests of the files that decide what a package answers: graph, weights, facts of
// the model, tokenizer. config.json carries it; it cannot carry the manifest's own digest, because the manifest
// lists config.json.
func (m *Manifest) Content() digest.Digest {
	var b []byte
	for _, f := range m.Files {
		switch f.Role {
		case RoleGraph, RoleWeights, RoleModel, RoleTokenizer:
			b = fmt.Appendf(b, "%s  %s\n", f.SHA256, f.Name)
		}
	}
	return digest.Of(b)
}
