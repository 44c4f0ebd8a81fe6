package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/internal/digest"
)

// maxExtra bounds the number of unlisted files that an error names.
const maxExtra = 20

// Hash reads r to its end and returns size and SHA-256 in a File without a name. With an io.TeeReader
// it hashes a copy while the copy is made.
func Hash(ctx context.Context, r io.Reader) (File, error) {
	n, d, err := digest.Read(ctx, r)
	return File{Size: n, SHA256: d.Hex()}, err
}

// HashFile describes a regular file, or the target of a symbolic link to one. The Name is the last
// element of path.
func HashFile(ctx context.Context, path string) (File, error) {
	// Stat comes first, because opening a pipe waits for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	file, err := Hash(ctx, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	file.Name = filepath.Base(path)
	return file, nil
}

// VerifyFiles compares a directory with the manifest. The error names every file that is missing, not listed, or different
// in size or content; each of these is a [DamagedError]. Files must be regular files: symbolic links are not followed.
// VerifyFiles reads neither the manifest.json of the directory, which may be absent, nor the signature, see [SignatureName],
// which may be present.
func (m *Manifest) VerifyFiles(ctx context.Context, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var errs []error
	for _, f := range m.Files {
		err := f.verify(ctx, root)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs, err)
	}
	extra, err := m.extra(root)
	errs = append(errs, err)
	for i, name := range extra {
		if i == maxExtra {
			errs = append(errs, damagedf("%d more files are not in the manifest", len(extra)-i))
			break
		}
		if name == SignatureName {
			errs = append(errs, errSignature())
			continue
		}
		errs = append(errs, damagedf("%q is not in the manifest", name))
	}
	return errors.Join(errs...)
}

// Damage compares the files in dir with the manifest, the smallest first, and returns a [DamagedError] for the first one that
// differs. Unlike VerifyFiles it follows links and ignores unlisted files: its purpose is to explain why a package cannot be
// read.
func (m *Manifest) Damage(ctx context.Context, dir string) error {
	for _, f := range slices.SortedStableFunc(slices.Values(m.Files), func(a, b File) int { return cmp.Compare(a.Size, b.Size) }) {
		got, err := HashFile(ctx, filepath.Join(dir, filepath.FromSlash(f.Name)))
		if errors.Is(err, fs.ErrNotExist) {
			return damagedf("%s is missing", f.Name)
		}
		if err == nil {
			err = f.Match(got)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Extra lists the files in dir that the manifest does not list, except manifest.json and a signature that
// [ReadSignature] would read. The names have forward slashes and are sorted. A directory without listed files is one name.
func (m *Manifest) Extra(dir string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return m.extra(root)
}

func (m *Manifest) extra(root *os.Root) ([]string, error) {
	files := map[string]bool{}
	dirs := map[string]bool{".": true}
	for _, f := range m.Files {
		files[f.Name] = true
		for d := path.Dir(f.Name); d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	var extra []string
	err := fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && dirs[name], !e.IsDir() && (files[name] || name == FileName):
			return nil
		case e.IsDir() && files[name]:
			return fs.SkipDir // reported as a file that is not regular
		case name == SignatureName && !e.IsDir():
			if info, err := e.Info(); err != nil || plainSignature(info) {
				return err
			}
		}
		extra = append(extra, name)
		if e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return extra, err
}

// OpenIn opens the file below root for reading. It must be a regular file of the listed size.
func (f File) OpenIn(root *os.Root) (*os.File, error) {
	name := filepath.FromSlash(f.Name)
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, damagedf("%s is missing", f.Name)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, damagedf("%s is not a regular file", f.Name)
	case info.Size() != f.Size:
		return nil, damagedf("%s has %d bytes and the manifest says %d", f.Name, info.Size(), f.Size)
	}
	return root.Open(name)
}

// Match compares size and digest with those of got; a difference is a [DamagedError].
func (f File) Match(got File) error {
	if got.Size != f.Size {
		return damagedf("%s has %d bytes and the manifest says %d", f.Name, got.Size, f.Size)
	}
	if got.SHA256 != f.SHA256 {
		return damagedf("%s has sha256 %s and the manifest says %s", f.Name, got.SHA256, f.SHA256)
	}
	return nil
}

func (f File) verify(ctx context.Context, root *os.Root) error {
	r, err := f.OpenIn(root)
	if err != nil {
		return err
	}
	got, err := Hash(ctx, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return f.Match(got)
}
