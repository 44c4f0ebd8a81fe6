package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/publish/manifest"
)

// explained is for commands that run or show a package without first comparing its files with the manifest, which would
// read gigabytes before the first token. After err, a failure to read part of the package in dir, it compares them;
// files that differ are the cause, and the error becomes a [manifest.DamagedError]. If dir is no package at all, the error is that of
// checkPackage.
func explained(ctx context.Context, dir string, err error) error {
	var (
		damaged *manifest.DamagedError
		usage   *exit.UsageError
	)
	if err == nil || ctx.Err() != nil || errors.As(err, &damaged) || errors.As(err, &usage) {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		if none := checkPackage(dir); none != nil {
			return none
		}
	}
	m, merr := readManifest(dir)
	if m != nil {
		merr = m.Damage(ctx, dir)
	}
	if !errors.As(merr, &damaged) {
		return err
	}
	return fmt.Errorf("%s: %w; the first error was: %v", dir, merr, err)
}
