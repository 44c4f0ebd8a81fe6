package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	maxTries  = 5                // in a row without a new byte
	maxPause  = 30 * time.Second // without a request by the server
	maxAsked  = 5 * time.Minute  // at the server's request; a longer one is an error
	firstWait = time.Second
)

// Retryable is an error after which another try may succeed.
type Retryable struct {
	Err   error
	After time.Duration // the wait that the server asks for; 0 if none

	held  bool // the request was not sent: the server had asked an earlier one to wait
	final bool // the same request will keep failing for some time; another server may succeed
}

func (r *Retryable) Error() string { return r.Err.Error() }
func (r *Retryable) Unwrap() error { return r.Err }

// Errors of connections that are too slow.
var (
	errStalled = errors.New("the connection has stalled")
	errSlow    = errors.New("the server is too slow")
)

// Broken reports whether err means that a connection was cut or stalled, so that it is unknown what the server has done. A
// request that is safe to repeat may be sent again.
func Broken(err error) bool {
	op, timeout := (*net.OpError)(nil), net.Error(nil)
	return errors.As(err, &op) || errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, errStalled) || errors.Is(err, errSlow) || errors.Is(err, context.Canceled)
}

// Retry calls try, which reports whether it made progress, until it returns no [Retryable] error, or until maxTries in a row
// have failed without progress. The context of each call ends when touch has not been called for Options.Stall, or reports fewer
// bytes than Options.MinSpeed requires; try reads through [Watch], which calls touch.
func Retry(ctx context.Context, what string, o Options, try func(ctx context.Context, touch func(int)) (bool, error)) error {
	for failures := 0; ; {
		progress, err := o.once(ctx, try)
		if progress {
			failures = 0
		}
		if err = o.wait(ctx, what, &failures, err); err != nil || failures == 0 {
			return err
		}
	}
}

// wait counts the failure of a try that ended with err, and pauses if another try makes sense. If it returns an error, the tries
// are over; a nil error with no failures means that the try succeeded.
func (o Options) wait(ctx context.Context, what string, failures *int, err error) error {
	again := (*Retryable)(nil)
	if !errors.As(err, &again) {
		*failures = 0
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !again.held || *failures == 0 {
		*failures++
	}
	if once(ctx) {
		return err
	}
	silent := noConnection(err) || errors.Is(err, errStalled) || errors.Is(err, errSlow)
	if again.final || o.Reach > 0 && *failures >= o.Reach && silent {
		return err
	}
	if *failures >= maxTries {
		return fmt.Errorf("%d tries failed: %w", maxTries, err)
	}
	if again.After > maxAsked {
		return fmt.Errorf("the server asks to wait %v: %w", again.After, err)
	}
	pause := min(maxPause, cmp.Or(o.Pause, firstWait)<<(*failures-1))
	spread := rand.N(pause/2 + 1) // programs cut off together should not all return together
	pause = max(pause/2, again.After) + spread
	zerolog.Ctx(ctx).Warn().Err(err).Str("what", what).Dur("wait", pause).Msg("trying again")
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pause):
		return nil
	}
}

func (o Options) once(parent context.Context, try func(context.Context, func(int)) (bool, error)) (bool, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	stall := cmp.Or(o.Stall, time.Minute)
	timer := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer timer.Stop()
	var (
		mu   sync.Mutex
		last time.Time // of the previous bytes: the start may take long
		pace = o.pace()
	)
	told, asked := listening(ctx)
	progress, err := try(told, func(n int) {
		timer.Reset(stall)
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if !last.IsZero() {
			if slow := pace.add(int64(n), now.Sub(last)); slow != nil {
				cancel(slow)
			}
		}
		last = now
	})
	again, after := (*Retryable)(nil), asked()
	switch {
	case !errors.As(err, &again):
	case context.Cause(ctx) == errStalled:
		err = &Retryable{Err: fmt.Errorf("no byte for %v: %w", stall, errStalled)}
	case errors.Is(context.Cause(ctx), errSlow):
		progress, err = false, &Retryable{Err: context.Cause(ctx)}
	case again.After == 0 && after > 0:
		// Others may hold the same error, so it is not modified.
		err = &Retryable{Err: err, After: after, held: again.held, final: again.final}
	}
	return progress, err
}

// Watch returns a reader of r that calls touch with the number of bytes whenever some arrive.
func Watch(r io.Reader, touch func(int)) io.Reader { return &watched{r, touch} }

type watched struct {
	io.Reader
	touch func(int)
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.touch(n)
	}
	return n, err
}
