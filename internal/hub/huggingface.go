package hub

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	gomlx "github.com/gomlx/go-huggingface/hub"

	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/jsondoc"
)

// huggingface is the protocol of huggingface.co and compatible servers.
type huggingface struct{}

func (huggingface) list(ctx context.Context, h *host, revision string, touch func(int)) (*listing, error) {
	u := h.url("api", "models", h.repo, "revision", url.PathEscape(revision))
	u.RawQuery = "blobs=true"
	resp, err := h.Get(ctx, u, nil)
	if err != nil {
		return nil, err
	}
	b, err := h.readAnswer(resp, touch)
	if err != nil {
		return nil, err
	}
	return parseListing(b)
}

// file requests content by name. Files in Xet storage need nothing special: the hub redirects to its bridge, which serves the
// whole file, and the X-Xet headers can be ignored.
func (huggingface) file(h *host, commit, name string) *url.URL {
	elem := []string{h.repo, "resolve", commit}
	for part := range strings.SplitSeq(name, "/") {
		elem = append(elem, url.PathEscape(part))
	}
	return h.url(elem...)
}

func (huggingface) access(h *host) *url.URL {
	u := h.url("api", "models", h.repo)
	u.RawQuery = url.Values{"expand": {"gated", "private"}}.Encode()
	return u
}

func (huggingface) self(h *host) *url.URL { return h.url("api", "whoami-v2") }

func (huggingface) authorize(r *http.Request, token string) {
	r.Header.Set("Authorization", "Bearer "+token)
}

func (huggingface) page(h *host) string { return h.url(h.repo).String() }

func (huggingface) tokenName() string { return "HF_TOKEN" }

func (huggingface) endpointName() string { return "HF_ENDPOINT" }

func (huggingface) branch(revision string) string { return revision }

// emptyBlob is git's digest of an empty file. [gomlx.FileInfo] cannot otherwise tell an empty file from one without a listed
// size.
const emptyBlob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"

// parseListing reads the hub's response about a revision.
func parseListing(b []byte) (*listing, error) {
	var answer struct {
		access
		SHA      string           `json:"sha"`
		Siblings []gomlx.FileInfo `json:"siblings"`
	}
	if err := jsondoc.Decode(b, &answer); err != nil {
		return nil, fmt.Errorf("the hub's list: %w: %w", err, fault.ErrCorrupt)
	}
	l, err := newListing(answer.SHA, len(answer.Siblings), func(i int) (string, *int64, string, string) {
		s := &answer.Siblings[i]
		switch {
		case s.LFS != nil && s.LFS.SHA256 != "":
			return s.Name, &s.LFS.Size, s.BlobID, s.LFS.SHA256
		case s.LFS != nil, s.Size == 0 && s.BlobID != emptyBlob:
			return s.Name, nil, "", ""
		}
		return s.Name, &s.Size, s.BlobID, ""
	})
	if err != nil {
		return nil, err
	}
	answer.set(l)
	return l, nil
}
