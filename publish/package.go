package publish

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Package is a package on this machine: the files that Manifest lists, in Dir. A package that has been
// published also has manifest.json in Dir; one that is being made need not. A signature in Dir, see
// [manifest.SignatureName], goes where the package goes.
type Package struct {
	Dir      string
	Manifest *manifest.Manifest
}

// Open reads the manifest of the package in dir. It does not read the other files; Manifest.VerifyFiles
// does.
func Open(dir string) (Package, error) {
	m, err := manifest.Open(dir)
	if err != nil {
		return Package{}, err
	}
	return Package{Dir: dir, Manifest: m}, nil
}

// OpenVerified is [Open] that also compares every file with the manifest.
func OpenVerified(ctx context.Context, dir string) (Package, error) {
	p, err := Open(dir)
	if err != nil {
		return Package{}, err
	}
	if err := p.Manifest.VerifyFiles(ctx, dir); err != nil {
		return Package{}, fmt.Errorf("%s: %w", dir, err)
	}
	return p, nil
}
