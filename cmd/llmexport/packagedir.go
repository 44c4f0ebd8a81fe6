package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmexport/llmexport/internal/exit"
)

// checkPackage returns a usage error unless dir looks like a package: a directory with config.json or a manifest and no weights of a
// checkpoint. The hint names packages nearby.
func checkPackage(dir string) error {
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return suggestPackages(exit.Usagef("%s does not exist", dir), filepath.Dir(dir))
	case err != nil:
		return err
	case !st.IsDir():
		return suggestPackages(exit.Usagef("%s is a file, not the directory of a package", dir), filepath.Dir(dir))
	case isCheckpoint(dir):
		return hint(exit.Usagef("%s is a checkpoint, not a package", dir), "llmexport init "+dir+" writes a recipe that makes a package of it")
	case !hasFile(dir, "config.json") && !hasFile(dir, "manifest.json"):
		return suggestPackages(exit.Usagef("%s contains no package", dir), dir)
	}
	return nil
}

// isCheckpoint reports whether dir has weights of a checkpoint and no graph.
func isCheckpoint(dir string) bool {
	has := func(pattern string) bool {
		list, _ := fs.Glob(os.DirFS(dir), pattern)
		return len(list) > 0
	}
	return hasFile(dir, "config.json") && has("*.safetensors") && !has("*.mnn")
}

func hasFile(dir, name string) bool {
	st, err := os.Stat(filepath.Join(dir, name))
	return err == nil && st.Mode().IsRegular()
}

// suggestPackages adds the packages directly inside parent to an error.
func suggestPackages(err error, parent string) error {
	const most = 5
	list, _ := os.ReadDir(parent)
	var found []string
	for _, e := range list {
		if at := filepath.Join(parent, e.Name()); hasFile(at, "config.json") && hasFile(at, "llm_config.json") && len(found) < most {
			found = append(found, at)
		}
	}
	if len(found) == 0 {
		return err
	}
	return hint(err, "did you mean "+strings.Join(found, " or ")+"?")
}
