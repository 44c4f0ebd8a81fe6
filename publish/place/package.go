// Package place is what all kinds of places have in common that packages are published to and pulled from: a [Store] for
// the one, an [Origin] for the other, and the [Freight] that travels. Nothing here speaks a protocol.
//
// Publishing has two steps, so that several places get a package together: [Store.Stage] transfers everything and shows
// nothing, [Staged.Commit] shows it. Whatever the kind, a package arrives whole or not at all, every byte is compared with
// the manifest on its way, and nothing that this program did not write is overwritten or removed.
package place

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Placeholder stands for a package's name in the place it goes to.
const Placeholder = "{name}"

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
