package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
)

const (
	maxTries  = 5                // in a row without a new byte
	maxPause  = 30 * time.Second // of our own choice
	maxAsked  = 5 * time.Minute  // on the hub's request; a longer one is an error that says so
	firstWait = time.Second
)

// retryable is an error after which another try may go well.
type retryable struct {
	err   error
	after time.Duration // what the hub asks to wait; 0 if it does not
}

func (r *retryable) Error() string { return r.err.Error() }
func (r *retryable) Unwrap() error { return r.err }

var errStalled = errors.New("the connection has stalled")

// retry calls try until it gives no retryable error, or maxTries in a row have failed without progress.
// The context of each call ends when touch has not been called for Options.Stall; try reads through
// watched, which calls it.
func (c *client) retry(ctx context.Context, what string, try func(ctx context.Context, touch func()) (progress bool, err error)) error {
	for failures := 1; ; failures++ {
		progress, err := c.once(ctx, try)
		again := (*retryable)(nil)
		if !errors.As(err, &again) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if progress {
			failures = 1
		}
		if failures == maxTries {
			return fmt.Errorf("%d tries failed: %w", maxTries, err)
		}
		wait := min(maxPause, cmp.Or(c.o.pause, firstWait)<<(failures-1))
		wait = wait/2 + rand.N(wait/2+1) // many programs cut off at once should not come back at once
		if again.after > maxAsked {
			return fmt.Errorf("the hub asks to wait %v: %w", again.after, err)
		}
		wait = max(wait, again.after)
		zerolog.Ctx(ctx).Warn().Err(err).Str("what", what).Dur("wait", wait).Msg("trying again")
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

func (c *client) once(parent context.Context, try func(context.Context, func()) (bool, error)) (bool, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	stall := cmp.Or(c.o.Stall, time.Minute)
	timer := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer timer.Stop()
	progress, err := try(ctx, func() { timer.Reset(stall) })
	if again := (*retryable)(nil); errors.As(err, &again) && context.Cause(ctx) == errStalled {
		err = &retryable{err: fmt.Errorf("no byte for %v: %w", stall, errStalled)}
	}
	return progress, err
}

// watched calls touch whenever bytes arrive.
type watched struct {
	io.Reader
	touch func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.touch()
	}
	return n, err
}
