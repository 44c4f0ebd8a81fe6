package verify_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"testing"

	"github.com/llmexport/llmexport/verify"
)

// An evaluation ends when its context does, and leaves nothing running; until then it counts windows, and
// the run in half precision that will follow as one more.
func TestEvaluateStops(t *testing.T) {
	s := open(t, goodPackage(t), tiny)
	before := goruntime.NumGoroutine()
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var counted []int64
	s.Options.Windows = 3
	s.Options.Progress = func(done, total int64) {
		counted = append(counted, done, total)
		if done == 2 {
			cancel(stop)
		}
	}
	if _, err := verify.Evaluate(ctx, s); !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, stop)
	}
	if len(counted) != 4 || counted[0] != 1 || counted[1] != 4 || counted[2] != 2 {
		t.Errorf("progress %v", counted)
	}
	if after := goruntime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}
