package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxJSON and maxTokenizer bound the size of files that are read from a package, in bytes.
const (
	maxJSON      = 16 << 20
	maxTokenizer = 256 << 20
	maxGraph     = 1<<31 - 1
)

// readBounded reads a regular file of at most limit bytes.
func readBounded(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file: %w", name, tensor.ErrCorrupt)
	case st.Size() > limit:
		return nil, fmt.Errorf("%s: %d bytes are more than the limit of %d: %w", name, st.Size(), limit, tensor.ErrCorrupt)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// weightFile reads parts of a weight file on demand. It implements mnn.Weights.
type weightFile struct {
	f    *os.File
	size int64
}

func (w *weightFile) Size() int64 { return w.size }

func (w *weightFile) Bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > w.size || n > w.size-off {
		return nil, fmt.Errorf("bytes %d+%d are outside the weight file of %d bytes: %w", off, n, w.size, tensor.ErrCorrupt)
	}
	b := make([]byte, n)
	_, err := w.f.ReadAt(b, off)
	return b, err
}
