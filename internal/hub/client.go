package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
)

// MaxMirrors keeps the number of mirrors below the number of tries of a request.
const MaxMirrors = 4

// service is the protocol of one hub.
type service interface {
	// list asks one server for the commit of a revision and for its files.
	list(ctx context.Context, h *host, revision string, touch func(int)) (*listing, error)
	// file returns the address of a file's content.
	file(h *host, commit, name string) *url.URL
	// access asks the hub who may read the repository; nil if the answer is incomplete.
	access(h *host) *url.URL
	// self returns the address that tells who a token belongs to.
	self(h *host) *url.URL
	// authorize adds the token to a request.
	authorize(r *http.Request, token string)
	// page is the web page of the repository.
	page(h *host) string
	// tokenName is the environment variable for the token.
	tokenName() string
	// endpointName is the environment variable for the endpoint.
	endpointName() string
	// branch is the default revision.
	branch(revision string) string
}

// services are the hubs that Options.Source can name.
var services = map[string]service{"": huggingface{}, ModelScope: modelscope{}}

// client talks to a hub about one repository.
type client struct {
	service
	o     Options
	hosts []*host // the endpoint, then the mirrors
	// at is the index of the host to ask next. It stays at one that can be reached.
	at     atomic.Int32
	report sync.Mutex // held during Options.Progress
}

// host is one server of a hub.
type host struct {
	*transfer.Client
	repo   string
	mirror bool
	// tokenName is the environment variable that sets the token, and page is the web page of the repository.
	tokenName, page string
}

// url joins path elements that are already escaped.
func (h *host) url(elem ...string) *url.URL { return h.Home.JoinPath(elem...) }

func newClient(o Options, repo string) (*client, error) {
	kind, ok := services[o.Source]
	if !ok {
		return nil, fmt.Errorf("source %.40q is not a known hub", o.Source)
	}
	if err := checkToken(o.Token); err != nil {
		return nil, err
	}
	if len(o.Mirrors) > MaxMirrors {
		return nil, fmt.Errorf("%d mirrors, at most %d are allowed", len(o.Mirrors), MaxMirrors)
	}
	c := &client{service: kind, o: o}
	for i, address := range append([]string{cmp.Or(o.Endpoint, endpoints[o.Source])}, o.Mirrors...) {
		what := "fetch.endpoint, or " + kind.endpointName()
		if i > 0 {
			what = "fetch.mirrors"
		}
		u, err := parseEndpoint(address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		h := &host{repo: repo, mirror: i > 0}
		h.Client = &transfer.Client{Home: u, HTTP: o.Client, UserAgent: cmp.Or(o.UserAgent, "llmexport"), Judge: h.statusError}
		if i == 0 && o.Token != "" {
			h.Secrets = &transfer.Secrets{}
			h.Secrets.Add(o.Token)
			h.Authorize = func(r *http.Request) { kind.authorize(r, o.Token) }
		}
		h.page, h.tokenName = kind.page(h), kind.tokenName()
		c.hosts = append(c.hosts, h)
	}
	return c, nil
}

// CheckEndpoint rejects strings that are not the base URL of a hub.
func CheckEndpoint(address string) error {
	_, err := parseEndpoint(address)
	return err
}

func parseEndpoint(address string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(address, "/"))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("not an http or https address") // not shown, as it may hold a password
	case u.User != nil:
		return nil, fmt.Errorf("the address of %s has a user or a password: set a token in the environment instead", u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the address of %s has a query or a fragment", u.Host)
	}
	return u, nil
}

// checkToken rejects tokens that a header cannot carry. The token itself is never shown.
func checkToken(token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the token (from the environment or the token file) contains spaces, line breaks or other characters that are invalid in a token")
	}
	return nil
}

// patience controls how long the client waits and how often it retries.
func (c *client) patience() transfer.Options {
	return transfer.Options{Stall: c.o.Stall, MinSpeed: c.o.MinSpeed, Pause: c.o.Pause}
}

// impatience is patience for answers that the cache has too: each server is asked once.
func (c *client) impatience() transfer.Options {
	o := c.patience()
	o.Stall, o.Reach = min(cmp.Or(o.Stall, time.Minute), cmp.Or(c.o.Ask, askTime)), len(c.hosts)
	return o
}

// askTime is the default of [Options.Ask], the same as in huggingface_hub.
const askTime = 10 * time.Second

// list asks for the commit of a revision and for its files.
func (c *client) list(ctx context.Context, revision string, o transfer.Options) (*listing, error) {
	var l *listing
	err := transfer.Retry(ctx, "list", o, func(ctx context.Context, touch func(int)) (bool, error) {
		i := c.at.Load()
		var err error
		l, err = c.service.list(ctx, c.hosts[i], revision, touch)
		if err == nil {
			l.mirror = c.hosts[i].mirror
		}
		return false, c.turn(i, err)
	})
	if err != nil {
		return nil, err
	}
	if isCommit(revision) && l.commit != revision {
		return nil, fmt.Errorf("the hub answers with commit %s: %w", l.commit, fault.ErrCorrupt)
	}
	return l, nil
}

// open opens ranges of a file on the first host that can be reached.
func (c *client) open(commit string, f remote) transfer.Range {
	ranges := make([]transfer.Range, len(c.hosts))
	for i, h := range c.hosts {
		ranges[i] = h.Range(c.file(h, commit, f.Name), f.Size)
	}
	return func(ctx context.Context, off, n int64) (io.ReadCloser, error) {
		i := c.at.Load()
		body, err := ranges[i](ctx, off, n)
		return body, c.turn(i, err)
	}
}

// turn handles an error of host i and moves on to the next host if that one may do better, which makes another try worthwhile. A
// rejection by the endpoint is final; a mirror that lacks a file or wants a token is passed over.
func (c *client) turn(i int32, err error) error {
	if err == nil || len(c.hosts) == 1 {
		return err
	}
	again, status := (*transfer.Retryable)(nil), (*StatusError)(nil)
	if !errors.As(err, &again) && (!c.hosts[i].mirror || !errors.As(err, &status)) {
		return err
	}
	c.at.CompareAndSwap(i, (i+1)%int32(len(c.hosts)))
	if c.hosts[i].mirror {
		err = fmt.Errorf("mirror %s: %w", c.hosts[i].Home.Host, err)
	}
	return &transfer.Retryable{Err: err}
}
