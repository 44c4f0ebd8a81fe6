package hub

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/llmexport/llmexport/internal/transfer"
)

// client talks to the hub about one repository.
type client struct {
	o      Options
	repo   string
	http   *transfer.Client
	report sync.Mutex // held during Options.Progress
}

func newClient(o Options, repo string) (*client, error) {
	u, err := url.Parse(strings.TrimRight(cmp.Or(o.Endpoint, DefaultEndpoint), "/"))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("endpoint %q is not an http or https address", o.Endpoint)
	}
	c := &client{o: o, repo: repo}
	c.http = &transfer.Client{Home: u, HTTP: o.Client, UserAgent: cmp.Or(o.UserAgent, "llmexport"), Judge: c.statusError}
	if o.Token != "" {
		c.http.Authorize = func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+o.Token) }
	}
	return c, nil
}

// url joins path elements that are escaped already.
func (c *client) url(elem ...string) *url.URL { return c.http.Home.JoinPath(elem...) }

// patience is how the client waits and tries again.
func (c *client) patience() transfer.Options {
	return transfer.Options{Stall: c.o.Stall, Pause: c.o.pause}
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
