package about

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/publish/manifest"
)

// maxLicense bounds a licence file in bytes; the longest in use have some 40,000.
const maxLicense = 1 << 20

var licensePrefixes = []string{"license", "licence", "notice", "use_policy"}

// IsLicense reports whether a file of a checkpoint must be distributed with packages made from it: LICENSE, NOTICE and
// USE_POLICY in any case, with any extension.
func IsLicense(name string) bool {
	low := strings.ToLower(name)
	for _, p := range licensePrefixes {
		if strings.HasPrefix(low, p) {
			return true
		}
	}
	return false
}

// Licenses lists the licence files at the top of a checkpoint's directory, sorted. They are regular files of at most 1
// MiB with names that are valid in packages; a warning names each one that is left out. Symbolic links are followed
// only inside the checkpoint or, for a snapshot in a hub's cache, to its blobs: others could publish any file of this
// machine.
func Licenses(dir string) (names, warnings []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	roots, err := licenseRoots(dir)
	if err != nil {
		return nil, nil, err
	}
	folded := map[string]bool{}
	for _, e := range entries {
		if !IsLicense(e.Name()) || e.IsDir() {
			continue
		}
		low := strings.ToLower(e.Name())
		err := checkLicense(filepath.Join(dir, e.Name()), roots)
		if err == nil && folded[low] {
			err = errors.New("another file has the same name in different case")
		}
		if err == nil {
			err = manifest.CheckName(e.Name())
		}
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("licence file %q is not copied: %v", e.Name(), err))
			continue
		}
		folded[low] = true
		names = append(names, e.Name())
	}
	return names, warnings, nil
}

func licenseRoots(dir string) ([]string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	abs = disk.Resolve(abs)
	roots := []string{abs}
	if snapshots := filepath.Dir(abs); filepath.Base(snapshots) == "snapshots" {
		roots = append(roots, disk.Resolve(filepath.Join(filepath.Dir(snapshots), "blobs")))
	}
	return roots, nil
}

func checkLicense(path string, roots []string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return withoutPath(err)
	}
	if real, err = filepath.Abs(real); err != nil {
		return err
	}
	real = disk.Resolve(real)
	allowed := false
	for _, root := range roots {
		allowed = allowed || disk.Inside(root, real)
	}
	if !allowed {
		return errors.New("it links to a file outside the checkpoint")
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return withoutPath(err)
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case info.Size() > maxLicense:
		return fmt.Errorf("it has %d bytes, the limit is %d", info.Size(), maxLicense)
	}
	return nil
}

// withoutPath removes the path from a file error: warnings go into reports, which must not contain paths of this
// machine.
func withoutPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
