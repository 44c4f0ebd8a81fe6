package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// maxHops is how many redirects are followed; the hub needs two.
const maxHops = 8

// client talks to the hub about one repository.
type client struct {
	o        Options
	repo     string
	endpoint *url.URL
	http     *http.Client
	report   sync.Mutex // held during Options.Progress
}

func newClient(o Options, repo string) (*client, error) {
	u, err := url.Parse(strings.TrimRight(cmp.Or(o.Endpoint, DefaultEndpoint), "/"))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("endpoint %q is not an http or https address", o.Endpoint)
	}
	h := *cmp.Or(o.Client, http.DefaultClient)
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{o: o, repo: repo, endpoint: u, http: &h}, nil
}

// url joins path elements that are escaped already.
func (c *client) url(elem ...string) *url.URL { return c.endpoint.JoinPath(elem...) }

// get asks for u from byte offset on and follows redirects. The standard client would hand the token on
// to sub-domains of the endpoint, where other parties' storage may live; here it goes to the endpoint's
// own scheme, host and port only. The caller closes the body and judges the status.
func (c *client) get(ctx context.Context, u *url.URL, offset int64) (*http.Response, error) {
	for range maxHops {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, redact(err)
		}
		req.Header.Set("User-Agent", cmp.Or(c.o.UserAgent, "llmexport"))
		req.Header.Set("Accept-Encoding", "identity") // sizes and digests are those of the plain file
		if offset > 0 {
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		}
		if c.o.Token != "" && c.home(u) {
			req.Header.Set("Authorization", "Bearer "+c.o.Token)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return nil, &retryable{err: redact(err)}
		}
		switch resp.StatusCode {
		case 301, 302, 303, 307, 308:
		default:
			return resp, nil
		}
		resp.Body.Close()
		next, err := resp.Location()
		if err != nil {
			return nil, redact(err)
		}
		if next.Scheme != "https" && next.Scheme != u.Scheme || next.Scheme != "https" && next.Scheme != "http" {
			return nil, fmt.Errorf("%s redirects from %s to %s", u.Host, u.Scheme, next.Scheme)
		}
		u = next
	}
	return nil, fmt.Errorf("%s redirects more than %d times", c.endpoint.Host, maxHops)
}

// home reports whether u is on the endpoint's server.
func (c *client) home(u *url.URL) bool {
	return u.Scheme == c.endpoint.Scheme && strings.EqualFold(u.Host, c.endpoint.Host)
}

// redact takes addresses out of an error: those of storage are signed and work for anyone.
func redact(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		host := "the hub"
		if p, perr := url.Parse(u.URL); perr == nil && p.Host != "" {
			host = p.Host
		}
		return fmt.Errorf("%s: %w", host, u.Err)
	}
	return err
}

// StatusError is an answer of the hub that is no success. It is fs.ErrPermission where access was
// refused and fs.ErrNotExist where there is nothing.
type StatusError struct {
	// Status is the HTTP status.
	Status int
	// Code is the hub's own word, such as "GatedRepo", "RepoNotFound" or "EntryNotFound"; may be empty.
	Code string
	// Hint says what the user can do; may be empty.
	Hint string
}

func (e *StatusError) Error() string {
	s := "the hub answers " + strconv.Itoa(e.Status)
	if e.Code != "" {
		s += " " + e.Code
	}
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}
