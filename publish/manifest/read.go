package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// ReadFile reads a listed file of the package in dir into memory and compares it with the manifest: a difference is a
// [DamagedError], a file of more than limit bytes is tensor.ErrUnsupported. For a file that is not listed ReadFile returns
// nil and no error.
func (m *Manifest) ReadFile(ctx context.Context, dir, name string, limit int64) (data []byte, err error) {
	i := slices.IndexFunc(m.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return nil, nil
	}
	f := m.Files[i]
	if f.Size > limit {
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d: %w", name, f.Size, limit, tensor.ErrUnsupported)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	r, err := f.OpenIn(root)
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(io.LimitReader(r, f.Size+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	got, err := Hash(ctx, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if err := f.Match(got); err != nil {
		return nil, err
	}
	return data, nil
}
