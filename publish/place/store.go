package place

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Store is one kind of place that packages are published to.
type Store interface {
	// String names the place for messages, for example "dir dist/qwen3-0.6b-int4". Errors of a store begin with it.
	String() string
	// Public reports whether people who were not given a right may read what is published there.
	Public() bool
	// Ready fails where Stage would fail for every package that could is true of, as far as that can be known without one:
	// rights, something else in the place. It changes nothing, so that a run can ask before its work. could reports whether
	// a package that is there may be the one that the run will make.
	Ready(ctx context.Context, could func(*manifest.Manifest) bool) error
	// Diff says what publishing would change. It changes nothing.
	Diff(ctx context.Context, p Package) (Diff, error)
	// Stage transfers what the place does not have and makes everything ready, while readers of the place still
	// see what was there. It compares every file with the manifest on its way, and fails with tensor.ErrCorrupt
	// when they differ. It fails where Commit would, as far as that can be known: rights, space, something else
	// in the place. When it fails or ctx ends, readers see what they saw, and what was transferred is kept
	// for the next Stage or removed.
	Stage(ctx context.Context, p Package) (Staged, error)
}

// Staged is a package that is ready to be shown. Close must follow, whatever happens.
type Staged interface {
	// Commit shows the package, in one step as far as the protocol allows. A package that is there already is left
	// alone. A second call gives the receipt of the first.
	Commit(ctx context.Context) (Receipt, error)
	// Revert undoes Commit, because another place failed. An error says what stays visible.
	Revert(ctx context.Context) error
	// Close ends the work on the place; what was staged and not committed is removed, unless a later Stage can use it.
	Close() error
}

// Origin is a place that a package is pulled from, at one fixed state of it: what changes there later is not seen,
// or is an error.
type Origin interface {
	// String is the reference with the state in it, such as a commit or a digest; a later pull of it gives the
	// same bytes.
	String() string
	// Read reads manifest.json or its signature, of at most limit bytes; nothing is checked yet. One that is not there
	// is fs.ErrNotExist, a longer one tensor.ErrCorrupt.
	Read(ctx context.Context, name string, limit int64) ([]byte, error)
	// Range gives parts of a file that the manifest lists.
	Range(f manifest.File) transfer.Range
}

// OpenOptions say how an [Origin] is opened. The zero value of each field is useful.
type OpenOptions struct {
	// HTTP sends the requests to hubs; nil is a client that all share. See transfer.Client.HTTP.
	HTTP *http.Client
	// UserAgent names the program to servers.
	UserAgent string
	// Transfer says how patient requests are.
	Transfer transfer.Options
}

// RefError is a reference that names no place, because it is not of a form that any kind of place has.
type RefError struct{ Err error }

func (e *RefError) Error() string { return e.Err.Error() }
func (e *RefError) Unwrap() error { return e.Err }

// CheckSize refuses a file that [Origin.Read] does not read.
func CheckSize(name string, size, limit int64) error {
	if size <= limit {
		return nil
	}
	return fmt.Errorf("%s has %d bytes, the limit is %d: %w", name, size, limit, tensor.ErrCorrupt)
}

// Status says what Commit did.
type Status string

// What Commit may have done.
const (
	Published Status = "published" // nothing was there before
	Replaced  Status = "replaced"  // another package was there, or this one with another signature or none
	Unchanged Status = "unchanged" // this package was there
)

// Diff says what publishing changes in a place. Names are sorted.
type Diff struct {
	Status  Status   `json:"status"`
	Add     []string `json:"add,omitempty"`
	Change  []string `json:"change,omitempty"`
	Remove  []string `json:"remove,omitempty"`
	Keep    []string `json:"keep,omitempty"`
	Upload  int64    `json:"upload"`            // bytes that the place does not have
	Creates string   `json:"creates,omitempty"` // a repository, branch or tag that does not exist yet
}

// Receipt says what was published and where.
type Receipt struct {
	Status Status `json:"status"`
	// Store is the kind of store, for example "dir"; Ref is what pull takes, with the published state in it where
	// the place has states.
	Store string `json:"store"`
	Ref   string `json:"ref"`
	// URL is where a browser shows the package; may be empty.
	URL string `json:"url,omitempty"`
	// Digest is that of the manifest.
	Digest manifest.Digest `json:"digest"`
	// Files and Bytes count manifest.json and its signature too.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Uploaded counts the bytes that this run had to transfer.
	Uploaded int64 `json:"uploaded"`
}

// To publishes a package to one place.
func To(ctx context.Context, s Store, p Package) (r Receipt, err error) {
	staged, err := s.Stage(ctx, p)
	if err != nil {
		return Receipt{}, err
	}
	defer func() { err = errors.Join(err, staged.Close()) }()
	return staged.Commit(ctx)
}
