package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/internal/fault"
)

// FetchFile downloads one file of a snapshot to path, outside the cache. An existing file of the right size is used as it is,
// because a file gets its name only after its size and digest match those that the hub lists; an interrupted download left in
// path.incomplete is completed. The caller keeps other processes away from path. A file without a listed SHA-256 is
// fault.ErrUnsupported.
func FetchFile(ctx context.Context, s *Snapshot, name, path string, o Options) error {
	err := fetchFile(ctx, s, name, path, o)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", Ref{Repo: s.Repo, Revision: s.Revision}, name, err)
	}
	return nil
}

func fetchFile(ctx context.Context, s *Snapshot, name, path string, o Options) error {
	i := slices.IndexFunc(s.Files, func(f File) bool { return f.Name == name })
	if i < 0 || !safePath(name) {
		return os.ErrNotExist
	}
	f := remote{File: s.Files[i], Blob: s.Files[i].SHA256}
	if f.SHA256 == "" {
		return fmt.Errorf("the hub lists no SHA-256 of it: %w", fault.ErrUnsupported)
	}
	if isFile(path, f.Size) {
		return nil
	}
	if o.Offline {
		return fmt.Errorf("nothing is fetched while offline: %w", os.ErrNotExist)
	}
	o.Source = s.Source
	c, err := newClient(o, s.Repo)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	part := filepath.Base(path) + ".incomplete"
	if err := c.bring(ctx, s.Revision, f, dir, part); err != nil {
		return err
	}
	return dir.Rename(part, filepath.Base(path))
}
