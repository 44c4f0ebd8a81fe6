// Package venv finds the engines that "make engine-venvs" has installed, for tests.
package venv

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const prefix = "mnn-"

// Engines are the virtual environments of releases of the engine below root, the top of the repository, oldest first: those of
// LLMEXPORT_ENGINES, releases with spaces between them, or all that are installed.
func Engines(root string) ([]string, error) {
	dir := filepath.Join(root, ".venv")
	asked := strings.Fields(os.Getenv("LLMEXPORT_ENGINES"))
	if len(asked) == 0 {
		asked = []string{"*"}
	}
	var list []string
	for _, release := range asked {
		found, err := filepath.Glob(filepath.Join(dir, prefix+release))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("no engine in .venv/%s%s: run make engine-venvs", prefix, release)
		}
		list = append(list, found...)
	}
	slices.Sort(list)
	return list, nil
}

// Release is the release of an engine's virtual environment.
func Release(dir string) string { return strings.TrimPrefix(filepath.Base(dir), prefix) }
