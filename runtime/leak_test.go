package runtime_test

import (
	"bytes"
	"os"
	goruntime "runtime"
	"testing"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

// TestDecodeAllocates: a token of a conversation that goes on costs no allocation, in either mode.
func TestDecodeAllocates(t *testing.T) {
	p := openPackage(t, small(t))
	for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
		s := session(t, p, mode)
		if _, err := s.Prefill(t.Context(), []int32{1, 2, 3, 4, 5}); err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		decode := func() {
			if _, err := s.Decode(ctx, 7); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			decode()
		}
		// The average is cut to an integer: room for keys and values is made every 64 tokens.
		if n := testing.AllocsPerRun(200, decode); n != 0 {
			t.Errorf("%v: %v allocations a token", mode, n)
		}
	}
}

// maps is the number of memory mappings of the process, or 0 where the system does not say.
func maps() int {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte("\n"))
}

// TestLives opens, uses and drops a thousand sessions: neither goroutines nor mappings stay.
func TestLives(t *testing.T) {
	dir := small(t)
	live := func() {
		p, err := runtime.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		s := session(t, p, backend.Int8)
		if _, err := s.Prefill(t.Context(), []int32{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Decode(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
	}
	lives := 1000
	if testing.Short() {
		lives = 100
	}
	for range 20 {
		live()
	}
	goroutines, mappings := goruntime.NumGoroutine(), maps()
	for range lives {
		live()
	}
	goruntime.GC()
	// The heap may grow by a few mappings.
	if g, m := goruntime.NumGoroutine(), maps(); g > goroutines+1 || m > mappings+20 {
		t.Errorf("%d goroutines and %d mappings after %d lives, %d and %d before", g, m, lives, goroutines, mappings)
	}
}
