package hub

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// huggingface is the protocol of huggingface.co and of those that speak it.
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

// file asks for content by name. A file of Xet storage comes as any other: the hub redirects to its bridge, which
// serves the file whole, and the X-Xet headers need not be understood.
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

func (huggingface) authorize(r *http.Request, token string) {
	r.Header.Set("Authorization", "Bearer "+token)
}

func (huggingface) page(h *host) string { return h.url(h.repo).String() }

func (huggingface) tokenName() string { return "HF_TOKEN" }

func (huggingface) endpointName() string { return "HF_ENDPOINT" }

func (huggingface) branch(revision string) string { return revision }

// parseListing reads the hub's answer about a revision.
func parseListing(b []byte) (*listing, error) {
	var answer struct {
		access
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
	if err := jsondoc.Decode(b, &answer); err != nil {
		return nil, fmt.Errorf("the hub's list: %w: %w", err, tensor.ErrCorrupt)
	}
	l, err := newListing(answer.SHA, len(answer.Siblings), func(i int) (string, *int64, string, string) {
		s := &answer.Siblings[i]
		if s.LFS != nil {
			if s.LFS.SHA256 == "" {
				return s.Name, nil, "", ""
			}
			return s.Name, &s.LFS.Size, s.Blob, s.LFS.SHA256
		}
		return s.Name, s.Size, s.Blob, ""
	})
	if err != nil {
		return nil, err
	}
	answer.set(l)
	return l, nil
}
