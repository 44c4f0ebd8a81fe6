package transfer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpproxy"
)

const (
	maxHops     = 8         // redirects followed; hubs need two
	maxHeader   = 256 << 10 // bytes of a response header
	idlePerHost = 32        // idle connections kept: several files at once, each over several connections
)

// shared sends the requests of all clients without an HTTP client of their own. It uses only HTTP/1: HTTP/2 would send the parts
// of a file one after the other over one connection, which requesting parts is meant to avoid.
var shared = &http.Client{Transport: newTransport()}

func newTransport() *http.Transport {
	t := &http.Transport{
		Proxy:                  proxyFrom(os.Getenv),
		DialContext:            (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    30 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConnsPerHost:    idlePerHost,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true,
		WriteBufferSize:        64 << 10, // reads of this size and more bypass the buffer, writes do not
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// proxyFrom reads the variables of http.ProxyFromEnvironment and ALL_PROXY, which applies to the schemes without a proxy of
// their own, as in curl and the Python clients.
func proxyFrom(getenv func(string) string) func(*http.Request) (*url.URL, error) {
	get := func(name string) string { return cmp.Or(getenv(name), getenv(strings.ToLower(name))) }
	all := get("ALL_PROXY")
	c := httpproxy.Config{HTTPProxy: cmp.Or(get("HTTP_PROXY"), all), HTTPSProxy: cmp.Or(get("HTTPS_PROXY"), all),
		NoProxy: get("NO_PROXY"), CGI: getenv("REQUEST_METHOD") != ""}
	proxy := c.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
}

// Client sends requests to one service. It must not be copied.
type Client struct {
	// Home is the service: the headers set by Authorize go only to its scheme, host and port.
	Home *url.URL
	// HTTP sends the requests; nil is a shared client. This package follows redirects and retries itself, so CheckRedirect is not
	// used. HTTP should have no Timeout, which would end long transfers.
	HTTP *http.Client
	// UserAgent names the program.
	UserAgent string
	// Authorize adds the credentials to a request; may be nil.
	Authorize func(r *http.Request)
	// Secrets are the secrets of the requests; nil is a set of the client's own. No response or error shows any of them.
	Secrets *Secrets
	// HandsOut reports whether the response to a request may hold credentials that the caller needs, see [Secrets.Transport]; may
	// be nil.
	HandsOut func(r *http.Request) bool
	// Judge turns an unsuccessful response into an error; nil is [StatusOf].
	Judge func(resp *http.Response) error

	mu    sync.Mutex
	until map[string]time.Time // by host: no request before this time

	answered atomic.Bool // some request was answered, so there is a network
	own      Secrets
}

func (c *Client) secrets() *Secrets { return cmp.Or(c.Secrets, &c.own) }

// Mask returns a copy of a response without the secrets of the client's requests.
func (c *Client) Mask(b []byte) []byte { return c.secrets().Mask(b) }

// Hide removes the secrets of the client's requests from an error.
func (c *Client) Hide(err error) error { return c.secrets().HideError(err) }

// Body returns the body of a request from its first byte, and its size; -1 if unknown. It is called again when the request is
// sent again. A reader that is an io.Closer is closed.
type Body func() (io.Reader, int64, error)

// At reports whether u is on the service's own server.
func (c *Client) At(u *url.URL) bool { return sameOrigin(u, c.Home) }

// sameOrigin compares scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// Get requests u; see [Client.Do].
func (c *Client) Get(ctx context.Context, u *url.URL, header http.Header) (*http.Response, error) {
	return c.Do(ctx, http.MethodGet, u, header, nil)
}

// Do sends a request with additional headers and a body, nil for none, and follows redirects. The standard client would forward
// credentials to sub-domains, where other parties' storage may live; here the service's credentials go only to its own scheme,
// host and port, and those in header only to that of u. The caller closes the body of the response and checks the status. An
// error is [Retryable] if the same request may succeed later and repeating it is safe: the method is idempotent, or the request
// was never sent.
func (c *Client) Do(ctx context.Context, method string, u *url.URL, header http.Header, body Body) (*http.Response, error) {
	resp, err := c.do(ctx, method, u, header, body)
	return resp, c.Hide(err)
}

func (c *Client) do(ctx context.Context, method string, u *url.URL, header http.Header, body Body) (*http.Response, error) {
	h := *cmp.Or(c.HTTP, shared)
	h.Transport = c.secrets().Transport(h.Transport, c.HandsOut)
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	first := u
	for range maxHops {
		req, err := c.request(ctx, method, u, header, body)
		if err != nil {
			return nil, err
		}
		if !sameOrigin(first, u) {
			for _, secret := range []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Amz-Security-Token"} {
				req.Header.Del(secret)
			}
		}
		if c.Authorize != nil && c.At(u) {
			c.Authorize(req)
		}
		if err := checkHeader(req.Header); err != nil {
			return nil, err
		}
		if err := c.held(u.Host); err != nil {
			return nil, err
		}
		resp, err := h.Do(req)
		if err != nil {
			return nil, c.transportError(ctx, method, err)
		}
		c.answered.Store(true)
		c.hold(u.Host, resp)
		switch resp.StatusCode {
		case 301, 302, 307, 308:
			if resp.StatusCode < 307 && method != http.MethodGet && method != http.MethodHead {
				resp.Body.Close()
				return nil, fmt.Errorf("%s answers %s to %s, which does not say what to send where", u.Host, resp.Status, method)
			}
		case 303:
			if method != http.MethodHead {
				method, body = http.MethodGet, nil
			}
		default:
			return resp, nil
		}
		resp.Body.Close()
		next, err := resp.Location()
		if err != nil {
			return nil, fmt.Errorf("%s redirects to nowhere", u.Host)
		}
		if next.Scheme != "https" && next.Scheme != u.Scheme || next.Scheme != "https" && next.Scheme != "http" || next.Host == "" {
			return nil, fmt.Errorf("%s redirects from %s to %.20q", u.Host, u.Scheme, next.Scheme)
		}
		if err := c.secrets().CheckHost(next); err != nil {
			return nil, fmt.Errorf("%s redirects to %w", u.Host, err)
		}
		u = next
	}
	return nil, fmt.Errorf("%s redirects more than %d times", c.Home.Host, maxHops)
}

// request makes one of the requests of a call of Do.
func (c *Client) request(ctx context.Context, method string, u *url.URL, header http.Header, body Body) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, Redact(err)
	}
	for k, v := range header {
		req.Header[k] = slices.Clone(v)
	}
	req.Header.Set("User-Agent", c.UserAgent)
	req.Header.Set("Accept-Encoding", "identity") // sizes and digests are those of the plain file
	if body == nil {
		return req, nil
	}
	open := func() (io.ReadCloser, int64, error) {
		r, n, err := body()
		if err != nil || n == 0 {
			return http.NoBody, n, err
		}
		if rc, ok := r.(io.ReadCloser); ok {
			return rc, n, nil
		}
		return io.NopCloser(r), n, nil
	}
	// The transport sends a request again if the server has closed an idle connection.
	req.GetBody = func() (io.ReadCloser, error) {
		r, _, err := open()
		return r, err
	}
	req.Body, req.ContentLength, err = open()
	return req, err
}

// checkHeader rejects characters that could end a header and begin another. It does not show the value, which may be a secret.
func checkHeader(h http.Header) error {
	for name, values := range h {
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("the value of the header %q has a line break or another control character", name)
			}
		}
	}
	return nil
}

// transportError classifies the error of a request without a response.
func (c *Client) transportError(ctx context.Context, method string, err error) error {
	name, certificate := (*net.DNSError)(nil), (*tls.CertificateVerificationError)(nil)
	switch {
	case ctx.Err() != nil && context.Cause(ctx) != errStalled && !errors.Is(context.Cause(ctx), errSlow):
		return context.Cause(ctx)
	case method != http.MethodPost && method != http.MethodPatch, noConnection(err):
		// "No such host" and a wrong certificate are answers. After earlier successes a change of the network is more likely.
		final := errors.As(err, &name) && name.IsNotFound || errors.As(err, &certificate)
		return &Retryable{Err: Redact(err), final: final && !c.answered.Load()}
	}
	return Redact(err)
}

// noConnection reports whether err means that the server, or the proxy on the way to it, could not be reached.
func noConnection(err error) bool {
	op, name := (*net.OpError)(nil), (*net.DNSError)(nil)
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") || errors.As(err, &name)
}

// hold delays all requests to a host if a response asks for that.
func (c *Client) hold(host string, resp *http.Response) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return
	}
	now := time.Now()
	after := RetryAfter(resp.Header, now)
	if after <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil {
		c.until = map[string]time.Time{}
	}
	for h, t := range c.until {
		if t.Before(now) {
			delete(c.until, h)
		}
	}
	if t := now.Add(min(after, maxAsked)); t.After(c.until[host]) {
		c.until[host] = t
	}
}

// held is the error of a request that has to wait.
func (c *Client) held(host string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait := time.Until(c.until[host]); wait > 0 {
		return &Retryable{Err: fmt.Errorf("%s has asked to wait", host), After: wait, held: true}
	}
	return nil
}
