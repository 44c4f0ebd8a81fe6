package disk

import (
	"path/filepath"
	"strings"
)

// Resolve follows the symbolic links in the part of an absolute path that exists.
func Resolve(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(Resolve(parent), filepath.Base(path))
}

// Inside reports whether inner is below outer. Both are absolute paths without links, see [Resolve].
func Inside(outer, inner string) bool {
	rel, err := filepath.Rel(outer, inner)
	return err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
