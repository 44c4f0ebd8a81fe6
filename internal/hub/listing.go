package hub

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
)

// maxListing bounds the hub's response, in bytes; that for a repository of 1,000 shards takes 0.3 MB.
const maxListing = 32 << 20

// listing is a revision and its files, checked and sorted by name.
type listing struct {
	commit string
	files  []remote // the wanted ones
	// names are the names of all files at the top level, wanted or not.
	names   map[string]bool
	gated   string // "auto", "manual" or empty
	private bool
	listed  bool // the hub has reported both
	mirror  bool // from a mirror, so nothing vouches for it
}

// remote is a file on the hub.
type remote struct {
	File
	// Blob is the name of the content in the cache: SHA-256, or git's SHA-1 for files outside LFS.
	Blob string `json:"blob"`
}

// newListing checks the files that a hub lists and keeps the wanted ones. A nil size means that none is listed.
func newListing(commit string, n int, at func(i int) (name string, size *int64, blob, sha256 string)) (*listing, error) {
	if !isCommit(commit) {
		return nil, fmt.Errorf("the hub's list has the commit %.60q: %w", commit, fault.ErrCorrupt)
	}
	l := &listing{commit: commit, names: map[string]bool{}}
	seen := map[string]bool{}
	for i := range n {
		name, size, blob, sum := at(i)
		if !strings.Contains(name, "/") {
			l.names[name] = true
		}
		ok, err := pick(name)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		f := remote{File: File{Name: name, SHA256: sum}, Blob: blob}
		if sum != "" {
			f.Blob = sum
		}
		if size == nil || f.Blob == "" {
			return nil, fmt.Errorf("%s: the hub lists no size or digest: %w", name, fault.ErrUnsupported)
		}
		f.Size = *size
		if err := errors.Join(f.check(), f.checkSize()); err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, fmt.Errorf("%s: listed twice by the hub: %w", name, fault.ErrCorrupt)
		}
		seen[name] = true
		l.files = append(l.files, f)
	}
	if !seen[singleFile] && !(seen[indexFile] && slices.ContainsFunc(l.files, func(f remote) bool { return isShard(f.Name) })) {
		return nil, errNoSafetensors
	}
	l.files = withoutDuplicates(l.files, func(f remote) string { return f.Name })
	slices.SortFunc(l.files, func(a, b remote) int { return strings.Compare(a.Name, b.Name) })
	return l, nil
}

// check requires a plain name, a valid size and well-formed digests, because digests become file names.
func (f remote) check() error {
	lfs := f.SHA256 != ""
	if ok, err := pick(f.Name); err != nil || !ok {
		return fmt.Errorf("file name %.200q: %w", f.Name, fault.ErrCorrupt)
	}
	if f.Size < 0 || lfs && (f.Blob != f.SHA256 || !digest.IsHex(f.Blob)) || !lfs && !isCommit(f.Blob) {
		return fmt.Errorf("%s: size %d and digest %.100q cannot be right: %w", f.Name, f.Size, f.Blob, fault.ErrCorrupt)
	}
	return nil
}

// readAnswer reads a successful response of at most maxListing bytes, and turns any other response into an error.
func (h *host) readAnswer(resp *http.Response, touch func(int)) ([]byte, error) {
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, h.statusError(resp)
	}
	return transfer.ReadAll(resp, maxListing, touch)
}
