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
	"time"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxHops is how many redirects are followed; hubs need two.
const maxHops = 8

// Client sends requests to one service.
type Client struct {
	// Home is the service: what Authorize sets goes to its scheme, host and port only.
	Home *url.URL
	// HTTP sends the requests; nil is http.DefaultClient. Redirects and retries are done here, its
	// CheckRedirect is not used. It should have no Timeout: that would end long downloads.
	HTTP *http.Client
	// UserAgent names the program.
	UserAgent string
	// Authorize adds the credentials; may be nil.
	Authorize func(r *http.Request)
	// Judge makes an error of an answer that is no success; nil is [StatusOf].
	Judge func(resp *http.Response) error
}

// At reports whether u is on the service's own server.
func (c *Client) At(u *url.URL) bool {
	return u.Scheme == c.Home.Scheme && strings.EqualFold(u.Host, c.Home.Host)
}

// Get asks for u with further headers and follows redirects. The standard client would hand credentials on to
// sub-domains, where other parties' storage may live; here they go to the service's own scheme, host and port
// only. The caller closes the body and judges the status.
func (c *Client) Get(ctx context.Context, u *url.URL, header http.Header) (*http.Response, error) {
	h := *cmp.Or(c.HTTP, http.DefaultClient)
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for range maxHops {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, Redact(err)
		}
		for k, v := range header {
			req.Header[k] = v
		}
		req.Header.Set("User-Agent", c.UserAgent)
		req.Header.Set("Accept-Encoding", "identity") // sizes and digests are those of the plain file
		if c.Authorize != nil && c.At(u) {
			c.Authorize(req)
		}
		resp, err := h.Do(req)
		if err != nil {
			return nil, &Retryable{Err: Redact(err)}
		}
		switch resp.StatusCode {
		case 301, 302, 303, 307, 308:
		default:
			return resp, nil
		}
		resp.Body.Close()
		next, err := resp.Location()
		if err != nil {
			return nil, Redact(err)
		}
		if next.Scheme != "https" && next.Scheme != u.Scheme || next.Scheme != "https" && next.Scheme != "http" {
			return nil, fmt.Errorf("%s redirects from %s to %s", u.Host, u.Scheme, next.Scheme)
		}
		u = next
	}
	return nil, fmt.Errorf("%s redirects more than %d times", c.Home.Host, maxHops)
}

// Range opens parts of the resource at u, which has size bytes.
func (c *Client) Range(u *url.URL, size int64) Range {
	return func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
		header := http.Header{}
		if off > 0 || n < size {
			header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
		}
		resp, err := c.Get(ctx, u, header)
		if err != nil {
			return nil, err
		}
		if err := c.accept(resp, off, n, size); err != nil {
			resp.Body.Close()
			return nil, err
		}
		return resp.Body, nil
	}
}

// accept checks that an answer is the range that was asked for.
func (c *Client) accept(resp *http.Response, off, n, size int64) error {
	switch resp.StatusCode {
	case http.StatusOK:
		if off > 0 {
			return fmt.Errorf("%s does not give parts of a file: %w", c.Home.Host, tensor.ErrUnsupported)
		}
		n = size
	case http.StatusPartialContent:
		want := fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, size)
		if got := resp.Header.Get("Content-Range"); got != want {
			return &Retryable{Err: fmt.Errorf("the server sends the range %.100q, not %q: %w", got, want, tensor.ErrCorrupt)}
		}
	case http.StatusRequestedRangeNotSatisfiable:
		return &Retryable{Err: fmt.Errorf("the server has no byte %d of the %d that are listed: %w", off, size, tensor.ErrCorrupt)}
	default:
		if c.Judge != nil {
			return c.Judge(resp)
		}
		return StatusOf(resp)
	}
	if got := resp.ContentLength; got >= 0 && got != n {
		return fmt.Errorf("the server sends %d bytes, %d are listed: %w", off+got, off+n, tensor.ErrCorrupt)
	}
	return nil
}

// StatusOf makes an error of an answer that is no success: [Retryable] where another try may go well.
func StatusOf(resp *http.Response) error {
	err := fmt.Errorf("%s answers %s", resp.Request.URL.Host, resp.Status)
	if Transient(resp.StatusCode) {
		return &Retryable{Err: err, After: RetryAfter(resp.Header.Get("Retry-After"), time.Now())}
	}
	return err
}

// Transient reports whether a status may be another one at the next try.
func Transient(status int) bool {
	return status == 408 || status == 425 || status == 429 || status >= 500 && status != 501
}

// RetryAfter reads the header of that name, seconds or a date; 0 if it says nothing.
func RetryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// Redact takes addresses out of an error: those of storage are signed and work for anyone.
func Redact(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		host := "the server"
		if p, perr := url.Parse(u.URL); perr == nil && p.Host != "" {
			host = p.Host
		}
		return fmt.Errorf("%s: %w", host, u.Err)
	}
	return err
}
