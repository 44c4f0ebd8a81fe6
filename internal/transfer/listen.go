package transfer

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// heardKey is the key of what Listen has heard, an *atomic.Int64 of nanoseconds, in the context of a try.
type heardKey struct{}

// Listen is base that tells the [Retry] around a request how long its answer asks to wait. It is for libraries whose errors
// do not say so.
func Listen(base http.RoundTripper) http.RoundTripper { return listener{base} }

type listener struct{ base http.RoundTripper }

func (l listener) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.base.RoundTrip(req)
	if heard, ok := req.Context().Value(heardKey{}).(*atomic.Int64); ok && err == nil {
		heard.Store(0)
		if Transient(resp.StatusCode) {
			heard.Store(int64(RetryAfter(resp.Header, time.Now())))
		}
	}
	return resp, err
}

// listening is a context for requests through Listen, and what the last of them was asked to wait.
func listening(ctx context.Context) (context.Context, func() time.Duration) {
	heard := new(atomic.Int64)
	return context.WithValue(ctx, heardKey{}, heard), func() time.Duration { return time.Duration(heard.Load()) }
}
