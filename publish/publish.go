// Package publish puts finished packages where users find them, and what goes with them: the model card,
// the licence files of the source, the report.
//
// A [Store] is one kind of place; [New] opens the one that a recipe's publish entry names. Whatever the
// kind, a package arrives whole or not at all, every byte is compared with the manifest on its way, and
// nothing that this program did not write is overwritten or removed.
package publish

import (
	"context"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Package is a package on this machine: the files that Manifest lists, in Dir. A package that has been
// published also has manifest.json in Dir; one that is being made need not.
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

// Store is one kind of place that packages live in.
type Store interface {
	// String names the place for messages, for example "dir dist/qwen3-0.6b-int4".
	String() string
	// Publish puts the package there. It compares every file with the manifest while it copies, and
	// fails with tensor.ErrCorrupt when they differ. When it fails or ctx ends, the place is as before.
	// A package that is there already is left alone.
	Publish(ctx context.Context, p Package) (Receipt, error)
	// Pull gives the package that ref names, as a Receipt has it, verified.
	Pull(ctx context.Context, ref string) (Package, error)
}

// Status says what Publish did.
type Status string

// What Publish may have done.
const (
	Published Status = "published" // nothing was there before
	Replaced  Status = "replaced"  // another package was there
	Unchanged Status = "unchanged" // this package was there
)

// Receipt says what was published and where.
type Receipt struct {
	Status Status `json:"status"`
	// Store is the kind of store, for example "dir"; Ref is what its Pull takes.
	Store string `json:"store"`
	Ref   string `json:"ref"`
	// Digest is that of the manifest.
	Digest manifest.Digest `json:"digest"`
	// Files and Bytes count manifest.json too.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}
