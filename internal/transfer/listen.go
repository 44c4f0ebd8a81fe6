package transfer

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// heardKey is the context key, within a try, of the wait that Listen has received: an *atomic.Int64 of nanoseconds.
type heardKey struct{}

// Listen wraps base so that the surrounding [Retry] learns how long a response asks to wait. It is for libraries whose errors do
// not contain it.
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

// listening returns a context for requests through Listen, and the wait that the last of them was asked for.
func listening(ctx context.Context) (context.Context, func() time.Duration) {
	heard := new(atomic.Int64)
	return context.WithValue(ctx, heardKey{}, heard), func() time.Duration { return time.Duration(heard.Load()) }
}
