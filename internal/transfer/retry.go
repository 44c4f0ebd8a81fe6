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
	maxPause  = 30 * time.Second // of our own choice
	maxAsked  = 5 * time.Minute  // on the server's request; a longer one is an error that says so
	firstWait = time.Second
)

// Retryable is an error after which another try may go well.
type Retryable struct {
	Err   error
	After time.Duration // what the server asks to wait; 0 if it does not

	held  bool // the request was not sent: the server had asked another one to wait
	final bool // the same request has the same end for some time; another server may do better
}

func (r *Retryable) Error() string { return r.Err.Error() }
func (r *Retryable) Unwrap() error { return r.Err }

// Errors of connections that bring too little.
var (
	errStalled = errors.New("the connection has stalled")
	errSlow    = errors.New("the server is too slow")
)

// Broken reports whether err says that a connection was cut, or gave nothing for too long, so that it is not known what the
// server has done. What may be asked twice may be asked again.
func Broken(err error) bool {
	op, timeout := (*net.OpError)(nil), net.Error(nil)
	return errors.As(err, &op) || errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, errStalled) || errors.Is(err, errSlow) || errors.Is(err, context.Canceled)
}

// Retry calls try, which reports whether it made progress, until it gives no [Retryable] error, or maxTries in a row have failed
// without progress. The context of each call ends when touch has not been called for Options.Stall, or for fewer bytes than
// Options.MinSpeed wants; try reads through [Watch], which calls it.
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

// wait pauses after the try that ended with err if another one makes sense, and counts the failure. The error it gives ends
// the tries; without one, no failures say that the try went well.
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
	spread := rand.N(pause/2 + 1) // many programs cut off at once should not come back at once
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
		last time.Time // of the bytes before: to begin may take its time
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
		// Others may have the same error, so it is not changed.
		err = &Retryable{Err: err, After: after, held: again.held, final: again.final}
	}
	return progress, err
}

// Watch is r that calls touch with the number of bytes whenever some arrive.
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
