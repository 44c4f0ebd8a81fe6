package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// explained is for commands that run or show a package without comparing its files with the manifest first, which would read
// gigabytes before the first token. Once something of the package in dir cannot be read, as err says, they are compared: what
// is not as listed is the cause, and the error becomes a [manifest.DamagedError].
func explained(ctx context.Context, dir string, err error) error {
	unread := errors.Is(err, tensor.ErrCorrupt) || errors.Is(err, tensor.ErrUnsupported) || errors.Is(err, fs.ErrNotExist)
	if damaged := (*manifest.DamagedError)(nil); !unread || errors.As(err, &damaged) {
		return err
	}
	m, merr := readManifest(dir)
	if m != nil {
		merr = m.Damage(ctx, dir)
	}
	if damaged := (*manifest.DamagedError)(nil); !errors.As(merr, &damaged) {
		return err
	}
	return fmt.Errorf("%s: %w; before that was seen: %v", dir, merr, err)
}
