package transfer

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
	maxAsked  = 5 * time.Minute  // on the server's request; a longer one is an error that says so
	firstWait = time.Second
)

// Retryable is an error after which another try may go well.
type Retryable struct {
	Err   error
	After time.Duration // what the server asks to wait; 0 if it does not
}

func (r *Retryable) Error() string { return r.Err.Error() }
func (r *Retryable) Unwrap() error { return r.Err }

var errStalled = errors.New("the connection has stalled")

// Retry calls try until it gives no [Retryable] error, or maxTries in a row have failed without progress.
// The context of each call ends when touch has not been called for Options.Stall; try reads through
// [Watch], which calls it.
func Retry(ctx context.Context, what string, o Options, try func(ctx context.Context, touch func()) (progress bool, err error)) error {
	for failures := 1; ; failures++ {
		progress, err := o.once(ctx, try)
		again := (*Retryable)(nil)
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
		wait := min(maxPause, cmp.Or(o.Pause, firstWait)<<(failures-1))
		wait = wait/2 + rand.N(wait/2+1) // many programs cut off at once should not come back at once
		if again.After > maxAsked {
			return fmt.Errorf("the server asks to wait %v: %w", again.After, err)
		}
		wait = max(wait, again.After)
		zerolog.Ctx(ctx).Warn().Err(err).Str("what", what).Dur("wait", wait).Msg("trying again")
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

func (o Options) once(parent context.Context, try func(context.Context, func()) (bool, error)) (bool, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	stall := cmp.Or(o.Stall, time.Minute)
	timer := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer timer.Stop()
	progress, err := try(ctx, func() { timer.Reset(stall) })
	if again := (*Retryable)(nil); errors.As(err, &again) && context.Cause(ctx) == errStalled {
		err = &Retryable{Err: fmt.Errorf("no byte for %v: %w", stall, errStalled)}
	}
	return progress, err
}

// Watch is r that calls touch whenever bytes arrive.
func Watch(r io.Reader, touch func()) io.Reader { return &watched{r, touch} }

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
