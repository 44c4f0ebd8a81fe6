package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxListing bounds the hub's answer, in bytes; that of a repository of 1,000 shards is 0.3 MB.
const maxListing = 32 << 20

// listing is a revision and its files, checked and sorted by name.
type listing struct {
	commit string
	files  []remote
}

// remote is a file on the hub.
type remote struct {
	File
	// Blob is the name of the content in the cache: SHA-256, or git's SHA-1 for what is no LFS file.
	Blob string `json:"blob"`
}

// list asks the hub for the commit behind a revision and for its files.
func (c *client) list(ctx context.Context, revision string) (*listing, error) {
	u := c.url("api", "models", c.repo, "revision", url.PathEscape(revision))
	u.RawQuery = "blobs=true"
	var l *listing
	err := transfer.Retry(ctx, "list", c.patience(), func(ctx context.Context, touch func()) (bool, error) {
		resp, err := c.http.Get(ctx, u, nil)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			return false, c.statusError(resp)
		}
		b, err := io.ReadAll(io.LimitReader(transfer.Watch(resp.Body, touch), maxListing+1))
		if err != nil {
			return false, &transfer.Retryable{Err: err}
		}
		if len(b) > maxListing {
			return false, fmt.Errorf("the hub's list exceeds %d bytes: %w", maxListing, tensor.ErrCorrupt)
		}
		l, err = parseListing(b)
		return false, err
	})
	if err != nil {
		return nil, err
	}
	if isCommit(revision) && l.commit != revision {
		return nil, fmt.Errorf("the hub answers with commit %s: %w", l.commit, tensor.ErrCorrupt)
	}
	return l, nil
}

// parseListing checks the hub's answer and keeps the files that are wanted.
func parseListing(b []byte) (*listing, error) {
	var answer struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
			Size *int64 `json:"size"`
			Blob string `json:"blobId"`
			LFS  *struct {
				SHA256 string `json:"sha256"`
				Size   int64  `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("the hub's list: %w: %w", err, tensor.ErrCorrupt)
	}
	if !isCommit(answer.SHA) {
		return nil, fmt.Errorf("the hub's list has the commit %.60q: %w", answer.SHA, tensor.ErrCorrupt)
	}
	l := &listing{commit: answer.SHA}
	seen := map[string]bool{}
	weights := false
	for _, s := range answer.Siblings {
		ok, err := pick(s.Name)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		f := remote{File: File{Name: s.Name}, Blob: s.Blob}
		size := s.Size
		if s.LFS != nil {
			size, f.Blob, f.SHA256 = &s.LFS.Size, s.LFS.SHA256, s.LFS.SHA256
		}
		if size == nil || f.Blob == "" {
			return nil, fmt.Errorf("%s: the hub lists no size or digest: %w", s.Name, tensor.ErrUnsupported)
		}
		f.Size = *size
		if err := f.check(); err != nil {
			return nil, err
		}
		if seen[f.Name] {
			return nil, fmt.Errorf("%s: listed twice by the hub: %w", f.Name, tensor.ErrCorrupt)
		}
		seen[f.Name] = true
		weights = weights || strings.HasSuffix(f.Name, ".safetensors")
		l.files = append(l.files, f)
	}
	if !weights {
		return nil, errNoSafetensors
	}
	l.files = withoutDuplicates(l.files, func(f remote) string { return f.Name })
	slices.SortFunc(l.files, func(a, b remote) int { return strings.Compare(a.Name, b.Name) })
	return l, nil
}

// check demands a plain name, a size, and digests that are digests, since they become file names.
func (f remote) check() error {
	lfs := f.SHA256 != ""
	if ok, err := pick(f.Name); err != nil || !ok {
		return fmt.Errorf("file name %.200q: %w", f.Name, tensor.ErrCorrupt)
	}
	if f.Size < 0 || lfs && (f.Blob != f.SHA256 || !sha256Pattern.MatchString(f.Blob)) || !lfs && !isCommit(f.Blob) {
		return fmt.Errorf("%s: size %d and digest %.100q cannot be right: %w", f.Name, f.Size, f.Blob, tensor.ErrCorrupt)
	}
	return nil
}
