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
	// From is where this run has got it from; empty for one that is no entry.
	From From
}

// From is where an entry of the store came from.
type From string

// Where entries come from.
const (
	Built  From = "built"
	Cached From = "cache" // the store of this machine
	Pulled From = "store" // the shared store
)

// Made reports whether a stage has made the artifact.
func (a Artifact) Made() bool { return a.Path != "" }

// Record reads the record of an entry's files, which were compared with it when the entry was found.
func (a Artifact) Record() (*Record, error) { return readRecord(a.Name, a.Path) }

// ReadJSON decodes a file of the artifact's directory.
func (a Artifact) ReadJSON(name string, to any) error {
	b, err := os.ReadFile(filepath.Join(a.Path, name))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}
