package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/llmexport/llmexport/internal/fault"
)

// Range opens ranges of the resource at u, which has size bytes. If the service redirects the first request to storage, later
// requests go there directly until storage rejects them: then the service is asked for a new address.
func (c *Client) Range(u *url.URL, size int64) Range {
	return (&resource{client: c, home: u, size: size}).open
}

// resource is the content at an address of a server.
type resource struct {
	client *Client
	home   *url.URL
	size   int64

	mu      sync.Mutex
	storage *url.URL           // its storage address, nil if unknown. It works for anyone and is never shown.
	version map[string]version // by host
}

// version identifies the content by response headers; either may be empty.
type version struct{ etag, modified string }

func (r *resource) open(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	header := http.Header{}
	if off > 0 || n < r.size {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	}
	resp, err := r.get(ctx, header)
	if err != nil {
		return nil, err
	}
	if err = r.client.accept(resp, off, n, r.size); err == nil {
		err = r.compare(resp)
	}
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp.Body, nil
}

// get requests from storage, or from the service if storage is unknown or fails.
func (r *resource) get(ctx context.Context, header http.Header) (*http.Response, error) {
	r.mu.Lock()
	at := r.storage
	r.mu.Unlock()
	if at != nil {
		resp, err := r.client.Get(ctx, at, header)
		if err == nil && resp.StatusCode < 300 {
			return resp, nil
		}
		r.mu.Lock()
		if r.storage == at {
			r.storage = nil
		}
		r.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case Transient(resp.StatusCode):
			return resp, nil
		}
		resp.Body.Close()
	}
	resp, err := r.client.Get(ctx, r.home, header)
	if err == nil && resp.StatusCode < 300 && resp.Request.URL.String() != r.home.String() {
		r.mu.Lock()
		r.storage = resp.Request.URL
		r.mu.Unlock()
	}
	return resp, err
}

// compare rejects a response whose content differs from that of an earlier response of the same server.
func (r *resource) compare(resp *http.Response) error {
	host := resp.Request.URL.Host
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.version[host]
	now := version{cmp.Or(resp.Header.Get("ETag"), before.etag), cmp.Or(resp.Header.Get("Last-Modified"), before.modified)}
	if r.version == nil {
		r.version = map[string]version{}
	}
	r.version[host] = now
	if before.etag != "" && before.etag != now.etag || before.etag == "" && before.modified != "" && before.modified != now.modified {
		return &wrongContent{fmt.Errorf("the file changes on %s while it is fetched: %w", host, fault.ErrCorrupt)}
	}
	return nil
}

// accept checks that a response is the requested range, or the beginning of it.
func (c *Client) accept(resp *http.Response, off, n, size int64) error {
	switch resp.StatusCode {
	case http.StatusOK:
		if got := resp.ContentLength; got >= 0 && got != size {
			return sizeError(got, size)
		}
		if off > 0 || n < size {
			return fmt.Errorf("%s: %w", resp.Request.URL.Host, ErrNoRanges)
		}
		return nil
	case http.StatusPartialContent:
		s := resp.Header.Get("Content-Range")
		first, last, total, err := ContentRange(s)
		switch {
		case err != nil || first != off || last >= off+n:
			return &Retryable{Err: fmt.Errorf("the server sends the range %.100q, not bytes %d-%d: %w", s, off, off+n-1, fault.ErrCorrupt)}
		case total >= 0 && total != size:
			return sizeError(total, size)
		case resp.ContentLength >= 0 && resp.ContentLength != last-first+1:
			return &Retryable{Err: fmt.Errorf("the server sends %d bytes for the range %.100q: %w", resp.ContentLength, s, fault.ErrCorrupt)}
		}
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		return &Retryable{Err: fmt.Errorf("the server has no byte %d of the %d that are listed: %w", off, size, fault.ErrCorrupt)}
	}
	if c.Judge != nil {
		return c.Judge(resp)
	}
	return StatusOf(resp)
}

func sizeError(got, size int64) error {
	return fmt.Errorf("the server has %d bytes, %d are listed: %w", got, size, fault.ErrCorrupt)
}

var errContentRange = errors.New("not a byte range")

// ContentRange parses the header of that name: the first and the last byte, and the size of the whole, -1 if the server does not
// know it. RFC 9110, section 14.4.
func ContentRange(s string) (first, last, total int64, err error) {
	span, size, ok := strings.Cut(strings.TrimPrefix(s, "bytes "), "/")
	a, b, dash := strings.Cut(span, "-")
	if !ok || !dash || !strings.HasPrefix(s, "bytes ") {
		return 0, 0, 0, errContentRange
	}
	number := func(s string) int64 {
		n, perr := strconv.ParseUint(s, 10, 63)
		err = errors.Join(err, perr)
		return int64(n)
	}
	first, last, total = number(a), number(b), -1
	if size != "*" {
		total = number(size)
	}
	if err != nil || first > last || total >= 0 && last >= total {
		return 0, 0, 0, errContentRange
	}
	return first, last, total, nil
}
