package hub

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"

	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
)

const (
	// listPage is the number of repositories that are asked for at once; the hub answers with at most a thousand.
	listPage = 500
	// maxListed bounds the repositories of an owner.
	maxListed = 20_000
)

// List returns the model repositories of an owner, an organisation or a user, on the Hugging Face hub: those that o's token may
// see. Mirrors are not asked. An owner without repositories, and one that does not exist, has an empty list.
func List(ctx context.Context, owner string, o Options) ([]string, error) {
	if err := checkRepo(owner + "/x"); err != nil {
		return nil, fmt.Errorf("%.80q is not the name of an owner of repositories", owner)
	}
	if o.Source != "" {
		return nil, fmt.Errorf("listing the repositories of an owner is not supported on %s: %w", o.Source, fault.ErrUnsupported)
	}
	if o.Offline {
		return nil, fmt.Errorf("%s: HF_HUB_OFFLINE is set, so the hub cannot be asked for repositories", owner)
	}
	c, err := newClient(o, owner+"/*")
	if err != nil {
		return nil, err
	}
	h := c.hosts[0]
	next := h.url("api", "models")
	next.RawQuery = url.Values{"author": {owner}, "limit": {strconv.Itoa(listPage)}}.Encode()
	var list []string
	for next != nil {
		var more []string
		var after *url.URL
		err := transfer.Retry(ctx, "repositories", c.patience(), func(ctx context.Context, touch func(int)) (bool, error) {
			resp, err := h.Get(ctx, next, nil)
			if err != nil {
				return false, err
			}
			header := resp.Header
			b, err := h.readAnswer(resp, touch)
			if err == nil {
				more, err = parseRepos(b)
			}
			if err == nil {
				after, err = h.following(next, header)
			}
			return false, err
		})
		if err != nil {
			return nil, fmt.Errorf("the repositories of %s: %w", owner, err)
		}
		if list = append(list, more...); len(list) > maxListed {
			return nil, fmt.Errorf("%s has more than %d repositories; name a list instead", owner, maxListed)
		}
		next = after
	}
	return list, nil
}

// parseRepos reads the names of repositories.
func parseRepos(b []byte) ([]string, error) {
	var answer []struct {
		ID string `json:"id"`
	}
	if err := jsondoc.Decode(b, &answer); err != nil {
		return nil, fmt.Errorf("the hub's list of repositories: %w: %w", err, fault.ErrCorrupt)
	}
	list := make([]string, len(answer))
	for i, x := range answer {
		if err := checkRepo(x.ID); err != nil {
			return nil, fmt.Errorf("the hub's list of repositories: %w: %w", err, fault.ErrCorrupt)
		}
		list[i] = x.ID
	}
	return list, nil
}

// nextLink matches the link to the next page.
var nextLink = regexp.MustCompile(`<([^<>]+)>\s*;\s*rel="next"`)

// following returns the address of the page after the one at u; nil if that is the last one. A link to another server is refused.
func (h *host) following(u *url.URL, header http.Header) (*url.URL, error) {
	m := nextLink.FindStringSubmatch(header.Get("Link"))
	if m == nil {
		return nil, nil
	}
	next, err := u.Parse(m[1])
	if err != nil || !h.At(next) || next.String() == u.String() {
		return nil, fmt.Errorf("the hub's link to more repositories, %.200q, leads elsewhere: %w", m[1], fault.ErrCorrupt)
	}
	return next, nil
}
