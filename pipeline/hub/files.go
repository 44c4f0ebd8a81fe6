package hub

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

// replaceFile puts data under path, whole or not at all, and makes the directory for it.
func replaceFile(path string, data []byte) error {
	return replaceFrom(filepath.Dir(path), path, data)
}

// replaceFrom does so by way of a file in the directory tmp, on the same disk.
func replaceFrom(tmp, path string, data []byte) error {
	return replaceWith(tmp, path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func replaceWith(dir, path string, write func(io.Writer) error) (err error) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.MkdirAll(dir, 0o777)); err != nil {
		return err
	}
	// os.CreateTemp would make a file that no other user of a shared cache can read.
	tmp := filepath.Join(dir, fmt.Sprintf("%s.%08x.tmp", filepath.Base(path), rand.Uint32()))
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
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
