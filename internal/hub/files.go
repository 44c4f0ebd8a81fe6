package hub

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/disk"
)

// replaceFile atomically writes data to path and creates its directory. The next call replaces any path.tmp that a kill left;
// the caller keeps other processes away.
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

// writing returns a function that writes data.
func writing(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// replaceIn atomically writes the output of write to a name below root, by way of the file tmp. An existing file is removed
// rather than written to, because it may have other names.
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
