package place

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Store is a place that packages are published to.
type Store interface {
	// String names the place for messages, for example "dir dist/qwen3-0.6b-int4". Errors of a store do not contain it;
	// callers add it by [ErrorAt].
	String() string
	// Public reports whether everyone may read packages published there.
	Public() bool
	// Ready fails if Stage would fail for every package for which could is true, as far as that can be known without
	// one: missing rights, other contents of the place. It changes nothing, so that a run can call it before its work.
	// could reports whether an existing package may be the one that the run will make.
	Ready(ctx context.Context, could func(*manifest.Manifest) bool) error
	// Diff returns what publishing would change. It changes nothing.
	Diff(ctx context.Context, p Package) (Diff, error)
	// Stage transfers what the place lacks and prepares everything, while readers of the place still see its previous
	// contents. It compares every file with the manifest on its way, and fails with tensor.ErrCorrupt if they differ.
	// It fails where Commit would, as far as that can be known: rights, space, other contents of the place. If it fails
	// or ctx ends, the place looks as before, and transferred data are kept for the next Stage or removed.
	Stage(ctx context.Context, p Package) (Staged, error)
}

// Staged is a package that is ready to be shown. Close must always be called.
type Staged interface {
	// Commit shows the package, in one step as far as the protocol allows. It leaves an identical package alone. A
	// second call returns the receipt of the first.
	Commit(ctx context.Context) (Receipt, error)
	// Revert undoes Commit, because another place failed. An error describes what stays visible.
	Revert(ctx context.Context) error
	// Close ends the work on the place; data that were staged and not committed are removed, unless a later Stage can
	// use them.
	Close() error
}

// Origin is a place that a package is pulled from, in one fixed state. Later changes of the place are invisible, or an
// error.
type Origin interface {
	// String returns the reference including the state, such as a commit or a digest; pulling it later gives the same
	// bytes.
	String() string
	// Read reads manifest.json or its signature, of at most limit bytes, without checking it. A missing file is
	// fs.ErrNotExist, a longer one tensor.ErrCorrupt.
	Read(ctx context.Context, name string, limit int64) ([]byte, error)
	// Range reads parts of a file that the manifest lists.
	Range(f manifest.File) transfer.Range
}

// OpenOptions configures the opening of an [Origin]. The zero value of each field is useful.
type OpenOptions struct {
	// HTTP sends the requests to hubs; nil is a shared client. See transfer.Client.HTTP.
	HTTP *http.Client
	// UserAgent identifies the program to servers.
	UserAgent string
	// Transfer sets retries and timeouts of requests.
	Transfer transfer.Options
	// Choose chooses a package where the reference names a release of several.
	Choose Chooser
}

// RefError is the error for a reference in the syntax of no kind of place.
type RefError struct{ Err error }

func (e *RefError) Error() string { return e.Err.Error() }
func (e *RefError) Unwrap() error { return e.Err }

// CheckSize returns an error for a file that is too large for [Origin.Read].
func CheckSize(name string, size, limit int64) error {
	if size <= limit {
		return nil
	}
	return fmt.Errorf("%s has %d bytes, the limit is %d: %w", name, size, limit, tensor.ErrCorrupt)
}

// Status is the effect of Commit.
type Status string

// Effects of Commit.
const (
	Published Status = "published" // nothing was there before
	Replaced  Status = "replaced"  // another package was there, or this one with another signature or none
	Unchanged Status = "unchanged" // this package was there
)

// Diff is what publishing changes in a place. Names are sorted.
type Diff struct {
	Status  Status   `json:"status"`
	Add     []string `json:"add,omitempty"`
	Change  []string `json:"change,omitempty"`
	Remove  []string `json:"remove,omitempty"`
	Keep    []string `json:"keep,omitempty"`
	Upload  int64    `json:"upload"`            // bytes that the place lacks
	Creates string   `json:"creates,omitempty"` // a repository, branch or tag that does not exist yet
}

// Receipt describes a publication.
type Receipt struct {
	Status Status `json:"status"`
	// Store is the kind of store, for example "dir"; Ref is a reference that can be pulled, including the published
	// state in places that have states.
	Store string `json:"store"`
	Ref   string `json:"ref"`
	// URL is the page of the package for a browser; may be empty.
	URL string `json:"url,omitempty"`
	// Digest is that of the manifest.
	Digest digest.Digest `json:"digest"`
	// Files and Bytes include manifest.json and its signature.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Uploaded counts the bytes that this run transferred.
	Uploaded int64 `json:"uploaded"`
}

// ErrorAt puts the name of the place before an error of its store; nil stays nil.
func ErrorAt(s Store, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s, err)
}

// To publishes a package to one place.
func To(ctx context.Context, s Store, p Package) (r Receipt, err error) {
	staged, err := s.Stage(ctx, p)
	if err != nil {
		return Receipt{}, ErrorAt(s, err)
	}
	defer func() { err = errors.Join(err, staged.Close()) }()
	r, err = staged.Commit(ctx)
	return r, ErrorAt(s, err)
}
