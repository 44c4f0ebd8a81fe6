package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/llmexport/llmexport/publish/manifest"
)

// explained is for commands that run or show a package without comparing its files with the manifest first, which would read
// gigabytes before the first token. Once something of the package in dir cannot be read, as err says, they are compared: what
// is not as listed is the cause, and the error becomes a [manifest.DamagedError].
func explained(ctx context.Context, dir string, err error) error {
	var (
		damaged *manifest.DamagedError
		usage   *usageError
	)
	if err == nil || ctx.Err() != nil || errors.As(err, &damaged) || errors.As(err, &usage) {
		return err
	}
	m, merr := readManifest(dir)
	if m != nil {
		merr = m.Damage(ctx, dir)
	}
	if !errors.As(merr, &damaged) {
		return err
	}
	return fmt.Errorf("%s: %w; before that was seen: %v", dir, merr, err)
}
