package placetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Shelf is a kind of place whose channels are tested.
type Shelf struct {
	// Store is where a version of the package goes.
	Store func(version string) place.Store
	// Open opens the reference of a channel.
	Open func(ctx context.Context, channel string, o place.OpenOptions) (place.Origin, error)
	// Ctx is that of all requests.
	Ctx context.Context
}

// Release publishes a version, and returns the shelf and the package as a channel has it.
func (s Shelf) Release(t testing.TB, version string) (place.Shelf, place.Package, channel.Package) {
	t.Helper()
	p := Package(t, version)
	store := s.Store(version)
	r, err := place.To(s.Ctx, store, p)
	if err != nil {
		t.Fatal(err)
	}
	shelf, _, err := store.(place.Shelved).Shelf()
	if err != nil {
		t.Fatal(err)
	}
	return shelf, p, channel.Package{Name: p.Manifest.Name, Digest: r.Digest, At: shelf.At(r)}
}

// Move moves a channel, and fails the test if it cannot.
func (s Shelf) Move(t testing.TB, shelf place.Shelf, name string, list ...channel.Package) {
	t.Helper()
	err := shelf.Update(s.Ctx, name, func(h channel.History) (channel.History, error) {
		h, _ = h.Move(time.Now(), list)
		return h, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// want demands that a channel gives exactly p.
func (s Shelf) want(t testing.TB, name string, o place.OpenOptions, p place.Package) {
	t.Helper()
	from, err := s.Open(s.Ctx, name, o)
	if err != nil {
		t.Error(err)
		return
	}
	WantOrigin(t, from, p)
}

// Run tests what holds of the channels of every kind of place.
func (s Shelf) Run(t *testing.T) {
	t.Run("story", s.story)
	t.Run("movers", s.movers)
	t.Run("variants", s.variants)
}

// story moves a channel forward and back.
func (s Shelf) story(t *testing.T) {
	shelf, one, first := s.Release(t, "one")
	if h, err := shelf.History(s.Ctx, "stable"); err != nil || h != nil {
		t.Fatalf("before: %v, %v", h, err)
	}
	if err := shelf.Ready(s.Ctx, "stable"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(s.Ctx, "stable", place.OpenOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a channel that does not exist: %v", err)
	}
	if _, _, err := place.Rollback(s.Ctx, shelf, "stable", "", time.Now()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a rollback of a channel that does not exist: %v", err)
	}
	s.Move(t, shelf, "stable", first)
	s.want(t, "stable", place.OpenOptions{}, one)

	_, two, second := s.Release(t, "two")
	s.want(t, "stable", place.OpenOptions{}, one) // until it moves
	s.Move(t, shelf, "stable", second)
	s.Move(t, shelf, "latest", second)
	s.want(t, "stable", place.OpenOptions{}, two)

	is, was, err := place.Rollback(s.Ctx, shelf, "stable", "", time.Now())
	if err != nil || is.Packages[0].Digest != first.Digest || was.Packages[0].Digest != second.Digest {
		t.Fatalf("%+v, %+v, %v", is, was, err)
	}
	s.want(t, "stable", place.OpenOptions{}, one)
	s.want(t, "latest", place.OpenOptions{}, two)
	s.Move(t, shelf, "stable", second) // what a rerun does
	s.want(t, "stable", place.OpenOptions{}, one)
	if _, _, err := place.Rollback(s.Ctx, shelf, "stable", "", time.Now()); !errors.Is(err, channel.ErrNoEarlier) {
		t.Errorf("a rollback to nothing: %v", err)
	}
	if _, _, err := place.Rollback(s.Ctx, shelf, "stable", string(second.Digest), time.Now()); err != nil {
		t.Error(err)
	}
	s.want(t, "stable", place.OpenOptions{}, two)
	names, err := shelf.Channels(s.Ctx)
	if err != nil || !slices.Equal(names, []string{"latest", "stable"}) {
		t.Errorf("%q, %v", names, err)
	}
	h, err := shelf.History(s.Ctx, "stable")
	if err != nil || len(h) != 2 {
		t.Errorf("%+v, %v", h, err)
	}

	// A release whose package is gone is no place to go back to, and the channel stays.
	gone := first
	gone.Digest, gone.At = second.Digest[:len(second.Digest)-8]+"00000000", strings.Repeat("0", len(first.At))
	if at, ok := strings.CutPrefix(first.At, "sha256:"); ok {
		gone.At = "sha256:" + strings.Repeat("0", len(at))
	}
	err = shelf.Update(s.Ctx, "stable", func(h channel.History) (channel.History, error) {
		return append(h, channel.Release{Moved: h[0].Moved, Packages: []channel.Package{gone}}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := place.Rollback(s.Ctx, shelf, "stable", string(gone.Digest), time.Now()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a rollback to a package that is gone: %v", err)
	}
	s.want(t, "stable", place.OpenOptions{}, two)

	// A channel is not believed if the place has something else.
	wrong := first
	wrong.Digest = second.Digest
	err = shelf.Update(s.Ctx, "wrong", func(channel.History) (channel.History, error) {
		return channel.History{{Moved: time.Unix(1, 0), Packages: []channel.Package{wrong}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := place.Rollback(s.Ctx, shelf, "wrong", "", time.Now()); !errors.Is(err, channel.ErrNoEarlier) {
		t.Error(err)
	}
	if err := place.Present(s.Ctx, shelf, wrong); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("a package of another digest: %v", err)
	}
}

// movers is the number of those that move channels at the same time.
const movers = 6

// movers moves channels at the same time: none is lost.
func (s Shelf) movers(t *testing.T) {
	shelf, _, p := s.Release(t, "three")
	var all sync.WaitGroup
	errs := make([]error, movers)
	for i := range movers {
		all.Go(func() {
			errs[i] = shelf.Update(s.Ctx, fmt.Sprint("c", i), func(h channel.History) (channel.History, error) {
				h, _ = h.Move(time.Now(), []channel.Package{p})
				return h, nil
			})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i := range movers {
		if h, err := shelf.History(s.Ctx, fmt.Sprint("c", i)); err != nil || len(h) != 1 {
			t.Errorf("c%d: %+v, %v", i, h, err)
		}
	}
}

// variants pulls one of several packages of a channel.
func (s Shelf) variants(t *testing.T) {
	shelf, four, small := s.Release(t, "four")
	_, five, large := s.Release(t, "five")
	near, far := .001, .1
	small.Name, large.Name = "small", "large"
	small.Facts = channel.Facts{Bytes: 1, DeviceBytes: 1 << 30, KL: &far, Backends: []string{"cpu"}}
	large.Facts = channel.Facts{Bytes: 2, DeviceBytes: 4 << 30, KL: &near, Backends: []string{"cpu", "cuda"}}
	s.Move(t, shelf, "both", large, small)
	choose := func(w channel.Want) place.OpenOptions {
		return place.OpenOptions{Choose: func(r channel.Release) (channel.Package, error) {
			p, _, err := r.Choose(w)
			return p, err
		}}
	}
	s.want(t, "both", choose(channel.Want{MaxRAM: 8 << 30}), five)
	s.want(t, "both", choose(channel.Want{MaxRAM: 2 << 30}), four)
	s.want(t, "both", choose(channel.Want{For: "cuda"}), five)
	s.want(t, "both", choose(channel.Want{Name: "small"}), four)
	if _, err := s.Open(s.Ctx, "both", choose(channel.Want{MaxRAM: 1})); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("nothing fits: %v", err)
	}
	if several := (*channel.AmbiguousError)(nil); true {
		if _, err := s.Open(s.Ctx, "both", place.OpenOptions{}); !errors.As(err, &several) || len(several.Packages) != 2 {
			t.Errorf("nothing chosen: %v", err)
		}
	}
}

// Contended returns a change that is called with a history that somebody else replaces meanwhile, by a release of other, the
// first time that it is called.
func Contended(t testing.TB, shelf place.Shelf, name string, own, other channel.Package) func(channel.History) (channel.History, error) {
	calls := 0
	return func(h channel.History) (channel.History, error) {
		if calls++; calls == 1 {
			err := shelf.Update(t.Context(), name, func(h channel.History) (channel.History, error) {
				h, _ = h.Move(time.Now(), []channel.Package{other})
				return h, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		h, _ = h.Move(time.Now(), []channel.Package{own})
		return h, nil
	}
}

// Collision tests that a mover that somebody else overtakes, between its reading and its writing, keeps what that one wrote.
// It needs a place without locks.
func (s Shelf) Collision(t *testing.T) {
	shelf, _, own := s.Release(t, "six")
	other := own
	own.Name, other.Name = "own", "other"
	for _, name := range []string{"new", "new"} { // the channel begins, and then it exists
		if err := shelf.Update(s.Ctx, name, Contended(t, shelf, name, own, other)); err != nil {
			t.Fatal(err)
		}
		h, err := shelf.History(s.Ctx, name)
		now, _ := h.Current()
		if err != nil || len(now.Packages) != 2 || now.Packages[0].Name != "other" || now.Packages[1].Name != "own" {
			t.Fatalf("%+v, %v", now, err)
		}
		_, _, again := s.Release(t, "seven")
		own.Digest, own.At = again.Digest, again.At
		other.Digest, other.At = again.Digest, again.At
	}
}
