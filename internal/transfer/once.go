package transfer

import "context"

// onceKey is the context key of [Once].
type onceKey struct{}

// Once returns a context in which [Retry] tries only once, for callers that report what is wrong now rather than wait until it is
// over.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

func once(ctx context.Context) bool { return ctx.Value(onceKey{}) != nil }
