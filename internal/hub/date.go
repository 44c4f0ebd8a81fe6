package hub

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
)

// Date returns the time, in UTC, of the commit that ref names as its revision. The endpoint is asked; mirrors and the cache
// do not know it. Errors are those of [Resolve], and fault.ErrUnsupported for other hubs than Hugging Face's.
func Date(ctx context.Context, ref Ref, o Options) (t time.Time, err error) {
	if err := ref.Check(); err != nil {
		return t, err
	}
	if o.Source != "" {
		return t, fmt.Errorf("dates of commits are not supported on %s: %w", o.Source, fault.ErrUnsupported)
	}
	if o.Offline {
		return t, fmt.Errorf("%s: HF_HUB_OFFLINE is set, so the hub cannot be asked for the date of the commit", ref)
	}
	c, err := newClient(o, ref.Repo)
	if err != nil {
		return t, err
	}
	h := c.hosts[0]
	u := h.url("api", "models", ref.Repo, "commits", url.PathEscape(ref.Revision))
	u.RawQuery = "limit=1"
	err = transfer.Retry(ctx, "date", c.patience(), func(ctx context.Context, touch func(int)) (bool, error) {
		resp, err := h.Get(ctx, u, nil)
		if err != nil {
			return false, err
		}
		b, err := h.readAnswer(resp, touch)
		if err == nil {
			t, err = parseDate(b, ref.Revision)
		}
		return false, err
	})
	if err != nil {
		return t, fmt.Errorf("%s: %w", ref, err)
	}
	return t, nil
}

// parseDate reads the date of a commit from the history that begins with it.
func parseDate(b []byte, commit string) (time.Time, error) {
	var history []struct {
		ID   string    `json:"id"`
		Date time.Time `json:"date"`
	}
	if err := jsondoc.Decode(b, &history); err != nil {
		return time.Time{}, fmt.Errorf("the hub's history: %w: %w", err, fault.ErrCorrupt)
	}
	if len(history) == 0 || history[0].ID != commit {
		return time.Time{}, fmt.Errorf("the hub's history does not begin with %s: %w", commit, fault.ErrCorrupt)
	}
	t := history[0].Date.UTC()
	if y := t.Year(); y < 1970 || y > 9999 {
		return time.Time{}, fmt.Errorf("the hub's history has a commit of the year %d: %w", y, fault.ErrCorrupt)
	}
	return t, nil
}
