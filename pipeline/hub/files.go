package hub

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: longer than %d bytes: %w", path, limit, tensor.ErrCorrupt)
	}
	return b, nil
}

// replaceFile puts data under path, whole or not at all, and makes the directory for it. What a kill leaves in path.tmp the
// next call replaces; the caller keeps other processes away.
func replaceFile(path string, data []byte) error { return replaceFrom(path+".tmp", path, data) }

// replaceFrom does so by way of the file tmp, on the same disk.
func replaceFrom(tmp, path string, data []byte) error {
	return replaceWith(tmp, path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func replaceWith(tmp, path string, write func(io.Writer) error) (err error) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.MkdirAll(filepath.Dir(tmp), 0o777)); err != nil {
		return err
	}
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
