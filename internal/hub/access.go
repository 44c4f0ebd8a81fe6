package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
)

// access is the hub's answer about who may read the repository; fields that the answer lacks are nil.
type access struct {
	Private *bool  `json:"private"`
	Gated   *gated `json:"gated"`
}

// set copies a into l if the answer was complete.
func (a access) set(l *listing) {
	if a.Private != nil && a.Gated != nil {
		l.private, l.gated, l.listed = *a.Private, string(*a.Gated), true
	}
}

// askAccess asks the endpoint who may read the repository, for a list that another program has left. It reports whether the
// answer is known; failing to learn it is not an error, because the files are known.
func (c *client) askAccess(ctx context.Context, l *listing) bool {
	h := c.hosts[0]
	u := c.access(h)
	if u == nil {
		return false
	}
	// The files are cached, so a machine without a network must not wait long.
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.o.Ask, askTime))
	defer cancel()
	o := c.impatience()
	o.Reach = 1 // do not ask mirrors
	err := transfer.Retry(ctx, "access", o, func(ctx context.Context, touch func(int)) (bool, error) {
		resp, err := h.Get(ctx, u, nil)
		if err != nil {
			return false, err
		}
		b, err := h.readAnswer(resp, touch)
		if err != nil {
			return false, err
		}
		var a access
		if err := jsondoc.Decode(b, &a); err != nil {
			return false, fmt.Errorf("the hub's answer: %w: %w", err, fault.ErrCorrupt)
		}
		a.set(l)
		return false, nil
	})
	if err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Str("repo", h.repo).Msg("the hub does not report whether the repository is gated or private")
	}
	return l.listed
}

// gated is false, "auto" or "manual" in the hub's responses; any other non-empty word also restricts access and is kept.
type gated string

// UnmarshalJSON implements json.Unmarshaler.
func (g *gated) UnmarshalJSON(b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case string:
		*g = gated(word(v))
		if v != "" && *g == "" {
			*g = "manual"
		}
	case bool:
		if v {
			*g = "manual"
		}
	default:
		return fmt.Errorf("gated is %.40q", b)
	}
	return nil
}
