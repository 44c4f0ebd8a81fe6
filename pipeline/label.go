package pipeline

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/jsondoc"
)

// Label says for which package an entry of a store was used last. It lies apart from the entry, for people: nothing depends on it.
type Label struct {
	// Package is the name of the package, Model its repository or directory, and Recipe the file of the recipe.
	Package string `json:"package"`
	Model   string `json:"model"`
	Recipe  string `json:"recipe"`
}

// maxLabel bounds the size of a label in bytes.
const maxLabel = 64 << 10

// labelsDir is the directory of the labels in a store.
const labelsDir = "labels"

func labelFile(dir, entry string) string { return filepath.Join(dir, labelsDir, entry) }

// WriteLabel labels an entry of the store in dir, unless it has this label.
func WriteLabel(dir, entry string, l Label) error {
	if readLabel(dir, entry) == l {
		return nil
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, labelsDir), 0o777); err != nil {
		return err
	}
	return WriteFile(labelFile(dir, entry), b)
}

// readLabel returns the label of an entry, which is empty if there is none or it cannot be read.
func readLabel(dir, entry string) (l Label) {
	b, err := disk.ReadFile(labelFile(dir, entry), maxLabel)
	if err != nil || jsondoc.Decode(b, &l) != nil {
		return Label{}
	}
	return l
}
