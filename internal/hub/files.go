package hub

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/disk"
)

// replaceFile puts data under path, whole or not at all, and makes the directory for it. What a kill leaves in path.tmp the
// next call replaces; the caller keeps other processes away.
func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(path)
	return replaceIn(dir, name+".tmp", name, writing(data))
}

// writing writes data.
func writing(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// replaceIn puts what write gives under a name below root, by way of the file tmp. One that is there is not written to, as it may
// have other names: it is removed.
func replaceIn(root *os.Root, tmp, name string, write func(io.Writer) error) (err error) {
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return disk.Name(root, err)
	}
	defer func() {
		if err != nil {
			_ = root.Remove(tmp)
		}
	}()
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return root.Rename(tmp, name)
}
