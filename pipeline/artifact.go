package pipeline

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/digest"
)

// Artifact is anything that a stage has made: mostly an entry of the store. The zero Artifact is one that was not made.
type Artifact struct {
	Name string
	// Path is its directory.
	Path string
	// Digest names its content.
	Digest digest.Digest
}

// Made reports whether a stage has made the artifact.
func (a Artifact) Made() bool { return a.Path != "" }

// ReadJSON decodes a file of the artifact's directory.
func (a Artifact) ReadJSON(name string, to any) error {
	b, err := os.ReadFile(filepath.Join(a.Path, name))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}
