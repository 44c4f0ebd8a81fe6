package hub

import (
	"context"
	"net/http"
	"time"

	"github.com/llmexport/llmexport/internal/transfer"
)

// Contact is the response of a hub to [Probe].
type Contact struct {
	// Clock is the time at which the hub sent its response, in whole seconds; zero if the response has no time.
	Clock time.Time
	// Rejected reports whether the hub does not accept the token.
	Rejected bool
}

// Probe asks the endpoint of o, once and without its mirrors, who the token belongs to. Any response but that of a broken server
// counts as contact. The cache is neither read nor written.
func Probe(ctx context.Context, o Options) (Contact, error) {
	o.Mirrors = nil
	c, err := newClient(o, "")
	if err != nil {
		return Contact{}, err
	}
	h := c.hosts[0]
	var found Contact
	err = transfer.Retry(transfer.Once(ctx), "probe", c.patience(), func(ctx context.Context, _ func(int)) (bool, error) {
		resp, err := h.Get(ctx, c.self(h), nil)
		if err != nil {
			return false, err
		}
		resp.Body.Close()
		if resp.StatusCode >= http.StatusInternalServerError {
			return false, h.statusError(resp)
		}
		found.Clock, _ = http.ParseTime(resp.Header.Get("Date"))
		found.Rejected = o.Token != "" && resp.StatusCode == http.StatusUnauthorized
		return false, nil
	})
	return found, err
}
