package runtime_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
)

// tokens returns n ids of the small package.
func tokens(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(1 + i*7%60)
	}
	return list
}

// TestTurnsResults: a prompt in pieces, between those of another session, gives the bits of the whole.
func TestTurnsResults(t *testing.T) {
	t.Parallel()
	p := openPackage(t, small(t))
	for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
		prompt := tokens(200)
		whole := session(t, p, mode)
		want, err := whole.Prefill(t.Context(), prompt)
		if err != nil {
			t.Fatal(err)
		}
		shared := whole.Fork()
		shared.Turns = runtime.NewTurns()
		var all sync.WaitGroup
		for range 3 {
			s := shared.Fork()
			all.Go(func() {
				got, err := s.Prefill(t.Context(), prompt)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%v: %v, equal %v", mode, err, slices.Equal(got, want))
				}
				for i := range int32(20) {
					if _, err := s.Decode(t.Context(), i+1); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
}

// TestTurnsCancelled: a session that waits for its turn stops waiting when its context ends, and can go on later.
func TestTurnsCancelled(t *testing.T) {
	t.Parallel()
	p := openPackage(t, small(t))
	s := session(t, p, backend.Int8)
	s.Turns = runtime.NewTurns()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := s.Prefill(ctx, tokens(5)); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	if _, err := s.Prefill(t.Context(), tokens(5)); err != nil || s.Len() != 5 {
		t.Errorf("%v, %d tokens", err, s.Len())
	}
}

// TestResume: what a prompt shares with the conversation is not computed again, and the result is that of the whole prompt.
func TestResume(t *testing.T) {
	t.Parallel()
	p := openPackage(t, small(t))
	s := session(t, p, backend.Int8)
	first := tokens(72)
	if _, err := s.Prefill(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	// The shared part ends at a group of tokens, so that the bits agree.
	second := append(slices.Clone(first[:48]), 61, 62, 63, 1, 2)
	want, err := s.Fork().Prefill(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Shared(&runtime.Prompt{Tokens: second}); n != 48 {
		t.Errorf("%d tokens are shared", n)
	}
	n := s.Resume(&runtime.Prompt{Tokens: second})
	if n != 48 || s.Len() != 48 {
		t.Fatalf("%d tokens are kept, %d are there", n, s.Len())
	}
	got, err := s.Prefill(t.Context(), second[n:])
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v; other logits than those of the whole prompt", err)
	}
	// At least two tokens are left to compute.
	if n := s.Resume(&runtime.Prompt{Tokens: second}); n != 48 {
		t.Errorf("the same prompt: %d of %d tokens are kept", n, len(second))
	}
	if n := s.Resume(&runtime.Prompt{Tokens: []int32{9, 9}}); n != 0 || s.Len() != 0 {
		t.Errorf("another prompt: %d tokens are kept, %d are there", n, s.Len())
	}
	// A conversation whose tokens are not known is not resumed.
	if err := s.FeedAt(t.Context(), first[:4], 10); err != nil {
		t.Fatal(err)
	}
	if n := s.Resume(&runtime.Prompt{Tokens: first}); n != 0 {
		t.Errorf("at another position: %d tokens are kept", n)
	}
}

// TestScore: the logits of every position are those of Forward.
func TestScore(t *testing.T) {
	t.Parallel()
	p := openPackage(t, small(t))
	s := session(t, p, backend.Int8)
	prompt := tokens(53)
	want, err := s.Forward(t.Context(), prompt)
	if err != nil {
		t.Fatal(err)
	}
	want = slices.Clone(want)
	width, at := len(want)/len(prompt), 0
	fork := s.Fork()
	err = fork.Score(t.Context(), prompt, func(i int, logits []float32) {
		if i != at || !slices.Equal(logits, want[i*width:(i+1)*width]) {
			t.Errorf("position %d, want %d; equal %v", i, at, slices.Equal(logits, want[i*width:(i+1)*width]))
		}
		at++
	})
	if err != nil || at != len(prompt) {
		t.Errorf("%v after %d positions", err, at)
	}
	if n := s.Fork(); n.BytesFor(100) != 0 {
		t.Errorf("%d bytes before anything is computed", n.BytesFor(100))
	}
	if got, want := fork.BytesFor(64+1), 2*fork.BytesFor(64); got != want || fork.BytesFor(53) != fork.Bytes() {
		t.Errorf("%d bytes for 65 tokens, want %d; %d for 53, want %d", got, want, fork.BytesFor(53), fork.Bytes())
	}
	if fork.Bytes() == 0 || fork.Bytes() != s.Bytes() {
		t.Errorf("%d bytes of keys and values, %d in the other session", fork.Bytes(), s.Bytes())
	}
}
