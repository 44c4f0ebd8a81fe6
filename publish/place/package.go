// Package place defines what all kinds of places have in common: a [Store] to publish packages to, an [Origin] to pull
// them from, and the [Freight] to send. It implements no protocol.
//
// Publishing has two steps, so that several places receive a package together: [Store.Stage] transfers everything and
// shows nothing, [Staged.Commit] shows it. In every kind of place, a package arrives whole or not at all, every byte is
// compared with the manifest on its way, and nothing that llmexport did not write is overwritten or removed.
package place

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Placeholder stands for the name of the package in a place, and in the directory of a pull.
const Placeholder = "{name}"

// Package is a package on this machine: the files that Manifest lists, in Dir. After publishing, Dir also contains
// manifest.json; while the package is being made, it need not. A signature in Dir, see [manifest.SignatureName], is
// published with the package.
type Package struct {
	Dir      string
	Manifest *manifest.Manifest
	// Signature is the file of a signature that is not in Dir; empty if that of Dir, if there is one, is published.
	Signature string
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

// OpenVerified is [Open], and compares every file with the manifest.
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
