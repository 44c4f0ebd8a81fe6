package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Shelf is where packages of one kind of place stand next to each other, and where channels name some of them: the parent of
// directories or prefixes, a repository, a repository of a registry.
type Shelf interface {
	// String is the reference of the shelf, such as s3://bucket/qwen3.
	String() string
	// Channels returns the names of the channels, sorted.
	Channels(ctx context.Context) ([]string, error)
	// History returns the releases of a channel; nil if there is no such channel.
	History(ctx context.Context, name string) (channel.History, error)
	// Ready fails if Update would fail, as far as that can be known, for example because the name is taken by something else.
	Ready(ctx context.Context, name string) error
	// Update replaces the history of a channel by what change makes of it. If somebody else has written in between, change is
	// called again with the new history, so that nothing is lost as far as the protocol allows. If change returns what it was
	// given, or an error, nothing is written.
	Update(ctx context.Context, name string, change func(channel.History) (channel.History, error)) error
	// At returns the position of a package on the shelf from the receipt of its publication.
	At(r Receipt) string
	// Open opens the package of a release. What is no longer there is fs.ErrNotExist.
	Open(ctx context.Context, p channel.Package, o OpenOptions) (Origin, error)
}

// Shelved is a store whose packages stand on a shelf. In places that packages are replaced in, at is the position of the
// package, see [Shelf.At]; elsewhere it is empty.
type Shelved interface {
	Shelf() (s Shelf, at string, err error)
}

// Chooser chooses a package of a release.
type Chooser func(channel.Release) (channel.Package, error)

// OpenChannel opens the package that a channel names. Without a chooser in the options, the release must have only one. A
// channel that does not exist is fs.ErrNotExist.
func OpenChannel(ctx context.Context, s Shelf, name string, o OpenOptions) (Origin, error) {
	h, err := s.History(ctx, name)
	if err != nil {
		return nil, err
	}
	if h == nil {
		return nil, fmt.Errorf("there is no channel %s: %w", name, fs.ErrNotExist)
	}
	p, err := ChooseFrom(h, o.Choose)
	if err != nil {
		return nil, err
	}
	from, err := s.Open(ctx, p, o)
	if err != nil {
		return nil, fmt.Errorf("channel %s: %s: %w", name, p.Name, err)
	}
	return &named{Origin: from, channel: name, p: p}, nil
}

// ChooseFrom chooses from the current release of a channel. Without a chooser, it must have only one package.
func ChooseFrom(h channel.History, chooser Chooser) (p channel.Package, err error) {
	r, ok := h.Current()
	switch {
	case !ok:
		return p, errors.New("every release of the channel was withdrawn")
	case chooser != nil:
		return chooser(r)
	}
	p, _, err = r.Choose(channel.Want{})
	return p, err
}

// Rollback moves a channel back to the release before the current one, or to the newest with a package of the digest to, see
// [channel.History.Target], and returns the releases that it names now and named before. All packages of the release must
// still be in the place. A channel that somebody else moves in between stays.
func Rollback(ctx context.Context, s Shelf, name, to string, now time.Time) (is, was channel.Release, err error) {
	h, err := s.History(ctx, name)
	if err != nil {
		return is, was, err
	}
	was, ok := h.Current()
	if !ok {
		return is, was, fmt.Errorf("there is no channel %s: %w", name, fs.ErrNotExist)
	}
	target, err := h.Target(to)
	if err != nil {
		return is, was, err
	}
	for _, p := range h[target].Packages {
		if err := Present(ctx, s, p); err != nil {
			return is, was, err
		}
	}
	next := h.Rollback(now, target)
	is, _ = next.Current()
	return is, was, s.Update(ctx, name, func(again channel.History) (channel.History, error) {
		if !again.Equal(h) {
			return nil, errors.New("somebody else has moved the channel in the meantime; look at it, and try again")
		}
		return next, nil
	})
}

// Present fails if the place no longer has a package of a release.
func Present(ctx context.Context, s Shelf, p channel.Package) error {
	from, err := s.Open(ctx, p, OpenOptions{})
	if err == nil {
		_, err = (&named{Origin: from, p: p}).Read(ctx, manifest.FileName, manifest.MaxSize)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is no longer at %s: %w", p.Name, p.At, err)
	}
	return err
}

// named is the package that a channel names. It must have the digest that the channel has.
type named struct {
	Origin
	channel string
	p       channel.Package
}

func (n *named) Read(ctx context.Context, name string, limit int64) ([]byte, error) {
	b, err := n.Origin.Read(ctx, name, limit)
	if err != nil || name != manifest.FileName {
		return b, err
	}
	m, err := manifest.Parse(b)
	if err != nil {
		return b, nil // the caller reads it again
	}
	if m.Digest != n.p.Digest {
		return nil, fmt.Errorf("%s at %s is not the package of the channel: it has digest %s, not %s: %w", n.p.Name, n.p.At, m.Digest,
			n.p.Digest, tensor.ErrCorrupt)
	}
	return b, nil
}

// SplitChannel splits "path@channel". The channel is empty if what follows the last @ cannot name one.
func SplitChannel(ref string) (rest, name string) {
	i := strings.LastIndexByte(ref, '@')
	if i <= 0 || channel.CheckName(ref[i+1:]) != nil {
		return ref, ""
	}
	return ref[:i], ref[i+1:]
}

// updateTries is how often an update that collides with others is begun again.
const updateTries = 40

// ErrCollision is the error of a try of [Collide] that found that somebody else has written.
var ErrCollision = errors.New("somebody else has written at the same time")

// Collide calls try until it does not return ErrCollision, with pauses of random lengths in between.
func Collide(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if !errors.Is(err, ErrCollision) || n == updateTries {
			return err
		}
		pause := time.NewTimer(rand.N(time.Duration(min(n, 10)) * 20 * time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
	}
}
