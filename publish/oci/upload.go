package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Sizes of the chunks of a blob, in bytes. A registry may require larger ones.
const (
	chunkSize = 8 << 20
	maxChunk  = 64 << 20
)

// upload uploads one blob: small ones in one request, others in chunks, which are sent again after a broken connection.
// An upload of a killed process is not continued: its address is a secret of the registry, which is not stored.
func (r *repository) upload(ctx context.Context, l layer) error {
	src, err := l.Open()
	if err != nil {
		return err
	}
	defer src.Close()
	return r.uploadFrom(ctx, l, src)
}

// uploadFrom uploads one blob from its content.
func (r *repository) uploadFrom(ctx context.Context, l layer, src io.ReaderAt) error {
	u := &upload{repo: r, layer: l, src: src, sum: digest.New(), chunk: chunkSize}
	ctx = auth.AppendRepositoryScope(ctx, r.Reference, auth.ActionPull, auth.ActionPush)
	return transfer.Retry(ctx, "upload "+l.Name, r.patience, func(ctx context.Context, touch func(int)) (bool, error) {
		was := u.at
		err := r.explain(u.run(ctx, touch))
		return u.at > was, err
	})
}

// upload is one upload session.
type upload struct {
	repo     *repository
	layer    layer
	src      io.ReaderAt
	location *url.URL // address of the session; nil if there is none
	at       int64    // bytes that the registry has
	chunk    int64

	hashed int64 // bytes covered by sum
	sum    digest.Hash
}

// run continues the session, or begins one.
func (u *upload) run(ctx context.Context, touch func(int)) error {
	if u.location != nil {
		if err := u.ask(ctx); err != nil {
			return err
		}
	}
	if u.location == nil {
		if err := u.begin(ctx); err != nil {
			return err
		}
	}
	size := u.layer.desc.Size
	for size-u.at > u.chunk {
		b, err := u.read(u.at, u.chunk)
		if err != nil {
			return err
		}
		header := http.Header{"Content-Range": {fmt.Sprintf("%d-%d", u.at, u.at+u.chunk-1)}}
		resp, err := u.repo.send(ctx, http.MethodPatch, u.location, header, b, touch)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusAccepted {
			return answered(resp)
		}
		u.at += u.chunk
		if err := u.follow(resp); err != nil {
			return err
		}
	}
	b, err := u.read(u.at, size-u.at)
	if err != nil {
		return err
	}
	if got := u.sum.Hex(); got != u.layer.desc.Digest.Encoded() {
		return fmt.Errorf("has sha256 %s, the manifest lists %s: %w", got, u.layer.desc.Digest.Encoded(), tensor.ErrCorrupt)
	}
	last := *u.location
	q := last.Query()
	q.Set("digest", string(u.layer.desc.Digest))
	last.RawQuery = q.Encode()
	header := http.Header{}
	if u.at > 0 {
		header.Set("Content-Range", fmt.Sprintf("%d-%d", u.at, size-1))
	}
	resp, err := u.repo.send(ctx, http.MethodPut, &last, header, b, touch)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		u.location, u.at = nil, 0 // the session is over in any case
		return answered(resp)
	}
	return nil
}

// read reads the next bytes, and adds the new ones to the digest.
func (u *upload) read(off, n int64) ([]byte, error) {
	b := make([]byte, n)
	if _, err := u.src.ReadAt(b, off); err != nil && err != io.EOF {
		return nil, err
	} else if err == io.EOF && n > 0 {
		// ReadAt may return io.EOF together with the last byte.
		if m, _ := u.src.ReadAt(make([]byte, 1), off+n-1); m == 0 {
			return nil, fmt.Errorf("was truncated: %w", tensor.ErrCorrupt)
		}
	}
	if end := off + n; end > u.hashed {
		u.sum.Write(b[u.hashed-off:])
		u.hashed = end
	}
	return b, nil
}

func (u *upload) begin(ctx context.Context) error {
	u.at = 0
	resp, err := u.repo.send(ctx, http.MethodPost, u.repo.address("blobs/uploads/"), nil, nil, func(int) {})
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusAccepted {
		return answered(resp)
	}
	if n, err := strconv.ParseInt(resp.Header.Get("OCI-Chunk-Min-Length"), 10, 64); err == nil && n > u.chunk {
		if n > maxChunk {
			return fmt.Errorf("the registry requires chunks of %d bytes, the limit is %d: %w", n, maxChunk, tensor.ErrUnsupported)
		}
		u.chunk = n
	}
	return u.follow(resp)
}

// ask finds out how much of an interrupted session has arrived. An expired session is forgotten.
func (u *upload) ask(ctx context.Context) error {
	resp, err := u.repo.send(ctx, http.MethodGet, u.location, nil, nil, func(int) {})
	if err != nil {
		return err
	}
	have, ok := int64(0), false
	if resp.StatusCode == http.StatusNoContent {
		if first, last, cut := strings.Cut(strings.TrimPrefix(resp.Header.Get("Range"), "bytes="), "-"); cut && first == "0" {
			n, err := strconv.ParseInt(last, 10, 64)
			have, ok = n+1, err == nil && n >= 0 && n < u.layer.desc.Size
			// An empty session reports 0-0, as one of a single byte does.
			ok = ok && have > 1
		}
	}
	if !ok || have > u.hashed {
		u.location, u.at = nil, 0
		return nil
	}
	u.at = have
	return u.follow(resp)
}

// follow returns the address of the next request. It must be on the registry: content and credentials are sent nowhere
// else.
func (u *upload) follow(resp *http.Response) error {
	next, err := resp.Location()
	if errors.Is(err, http.ErrNoLocation) && u.location != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the registry returned no upload address: %w", tensor.ErrCorrupt)
	}
	home := resp.Request.URL
	if next.Port() == "" && home.Port() == "443" && next.Hostname() == home.Hostname() {
		next.Host = home.Host
	}
	if next.Scheme != home.Scheme || !strings.EqualFold(next.Host, home.Host) {
		return fmt.Errorf("the registry redirects the upload to %s://%s: %w", next.Scheme, next.Host, tensor.ErrUnsupported)
	}
	u.location = next
	return nil
}

// send makes one request and reads the short response; touch is called while b is being sent.
func (r *repository) send(ctx context.Context, method string, to *url.URL, header http.Header, b []byte,
	touch func(int)) (*http.Response, error) {
	body := func() io.ReadCloser { return io.NopCloser(transfer.Watch(bytes.NewReader(b), touch)) }
	req, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return nil, transfer.Redact(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if method != http.MethodGet {
		req.ContentLength = int64(len(b))
	}
	if len(b) > 0 {
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Body, req.GetBody = body(), func() (io.ReadCloser, error) { return body(), nil }
	}
	resp, err := r.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, &transfer.Retryable{Err: transfer.Redact(err)}
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp, nil
}

// answered returns the error for an unsuccessful response.
func answered(resp *http.Response) error {
	e := &errcode.ErrorResponse{Method: resp.Request.Method, URL: resp.Request.URL, StatusCode: resp.StatusCode}
	var text struct {
		Errors errcode.Errors `json:"errors"`
	}
	if b, err := io.ReadAll(resp.Body); err == nil && jsondoc.Decode(b, &text) == nil { // bounded by send
		e.Errors = text.Errors
	}
	return e
}

// pushManifest pushes an image manifest under a tag.
func (r *repository) pushManifest(ctx context.Context, d ocispec.Descriptor, b []byte, tag string) error {
	return r.try(ctx, "push the manifest", func(ctx context.Context, touch func(int)) error {
		return r.PushReference(ctx, d, transfer.Watch(bytes.NewReader(b), touch), tag)
	})
}

// deleteTag deletes a tag, if the registry supports it.
func (r *repository) deleteTag(ctx context.Context, tag string) error {
	ctx = auth.AppendRepositoryScope(ctx, r.Reference, auth.ActionPull, auth.ActionDelete)
	return r.try(ctx, "delete "+tag, func(ctx context.Context, _ func(int)) error {
		resp, err := r.send(ctx, http.MethodDelete, r.address("manifests/"+tag), nil, nil, func(int) {})
		if err == nil && resp.StatusCode != http.StatusAccepted && resp.StatusCode != http.StatusNotFound {
			err = answered(resp)
		}
		return err
	})
}

// address returns an address of the repository.
func (r *repository) address(part string) *url.URL {
	u := &url.URL{Scheme: "https", Host: r.Reference.Host(), Path: "/v2/" + r.Reference.Repository + "/" + part}
	if r.PlainHTTP {
		u.Scheme = "http"
	}
	return u
}
