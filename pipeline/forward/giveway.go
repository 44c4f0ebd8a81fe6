package forward

import "context"

type giveWay struct{}

// GiveWay returns a context whose products nothing waits for yet, so that a device does other work first. What is computed stays the same.
func GiveWay(ctx context.Context) context.Context { return context.WithValue(ctx, giveWay{}, true) }

func givesWay(ctx context.Context) bool { return ctx.Value(giveWay{}) != nil }
