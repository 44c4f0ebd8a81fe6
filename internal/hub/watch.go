package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
)

// Tip is the current commit of a revision.
type Tip struct {
	// Commit is empty if Unchanged.
	Commit string
	// ETag identifies the response, for the next call; empty if the hub sends none.
	ETag string
	// Unchanged means that the response still has the ETag that was sent.
	Unchanged bool
}

// etagPattern is the form of RFC 9110, 8.8.3, without the bytes above ASCII.
var etagPattern = regexp.MustCompile(`^(W/)?"[!#-~]{0,200}"$`)

// Head asks the hub only for the commit of a revision. The etag is from an earlier Tip, or empty; with it, an unchanged response
// has no body. The cache is neither read nor written.
//
// Errors are those of [Resolve]; [Transient] reports those that may pass.
func Head(ctx context.Context, ref Ref, etag string, o Options) (Tip, error) {
	if err := ref.Check(); err != nil {
		return Tip{}, err
	}
	if o.Offline {
		return Tip{}, fmt.Errorf("%s: HF_HUB_OFFLINE is set, so the hub cannot be asked for new commits", ref)
	}
	c, err := newClient(o, ref.Repo)
	if err != nil {
		return Tip{}, err
	}
	t, err := c.head(ctx, cmp.Or(ref.Revision, "main"), etag)
	if err != nil {
		return Tip{}, fmt.Errorf("%s: %w", ref, err)
	}
	return t, nil
}

// Check rejects a reference that cannot name a repository, whatever the hub holds.
func (r Ref) Check() error {
	if r.Path != "" {
		return fmt.Errorf("%s: a local directory has no revisions", r.Path)
	}
	return errors.Join(checkRepo(r.Repo), checkRevision(cmp.Or(r.Revision, "main")))
}

func (c *client) head(ctx context.Context, revision, etag string) (Tip, error) {
	if c.o.Source != "" {
		return Tip{}, fmt.Errorf("watching for new commits is not supported on %s: %w", c.o.Source, fault.ErrUnsupported)
	}
	var header http.Header
	if etag != "" {
		header = http.Header{"If-None-Match": {etag}}
	}
	var t Tip
	err := transfer.Retry(ctx, "head", c.patience(), func(ctx context.Context, touch func(int)) (bool, error) {
		i := c.at.Load()
		var err error
		t, err = c.hosts[i].head(ctx, revision, header, touch)
		return false, c.turn(i, err)
	})
	if err == nil && isCommit(revision) && !t.Unchanged && t.Commit != revision {
		err = fmt.Errorf("the hub answers with commit %s: %w", t.Commit, fault.ErrCorrupt)
	}
	if err != nil {
		return Tip{}, err
	}
	return t, nil
}

func (h *host) head(ctx context.Context, revision string, header http.Header, touch func(int)) (t Tip, err error) {
	u := h.url("api", "models", h.repo, "revision", url.PathEscape(revision))
	// Without expand the response holds download counters, and its ETag changes with them.
	u.RawQuery = "expand=sha"
	resp, err := h.Get(ctx, u, header)
	if err != nil {
		return Tip{}, err
	}
	if resp.StatusCode == http.StatusNotModified && header != nil {
		resp.Body.Close()
		return Tip{ETag: header.Get("If-None-Match"), Unchanged: true}, nil
	}
	b, err := h.readAnswer(resp, touch) // mirrors may not know expand
	if err != nil {
		return Tip{}, err
	}
	if t.Commit, err = parseTip(b); err != nil {
		return Tip{}, err
	}
	if e := resp.Header.Get("ETag"); etagPattern.MatchString(e) {
		t.ETag = e
	}
	return t, nil
}

// parseTip reads the commit from the hub's response about a revision.
func parseTip(b []byte) (string, error) {
	if len(b) > maxListing {
		return "", fmt.Errorf("the hub's answer exceeds %d bytes: %w", maxListing, fault.ErrCorrupt)
	}
	var answer struct {
		SHA string `json:"sha"`
	}
	if err := jsondoc.Decode(b, &answer); err != nil {
		return "", fmt.Errorf("the hub's answer: %w: %w", err, fault.ErrCorrupt)
	}
	if !isCommit(answer.SHA) {
		return "", fmt.Errorf("the hub's answer has the commit %.60q: %w", answer.SHA, fault.ErrCorrupt)
	}
	return answer.SHA, nil
}

// Transient reports whether err was caused by the network or an overloaded hub, so that the same request may succeed later. The
// duration is how long the hub asks to wait; 0 if it does not.
func Transient(err error) (after time.Duration, ok bool) {
	var (
		again *transfer.Retryable
		op    *net.OpError
		dns   *net.DNSError
	)
	if errors.As(err, &again) {
		return again.After, true
	}
	return 0, errors.As(err, &op) || errors.As(err, &dns)
}
