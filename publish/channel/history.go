package channel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// History is the releases of a channel, newest first.
type History []Release

// Status is the effect of a move.
type Status string

// Effects of a move.
const (
	Moved     Status = "moved"
	Unchanged Status = "unchanged" // the channel names these packages
	Withdrawn Status = "withdrawn" // a rollback took this release back, so the channel stays
)

// Current returns the release that the channel names.
func (h History) Current() (Release, bool) {
	i := h.current()
	if i < 0 {
		return Release{}, false
	}
	return h[i], true
}

// Equal reports whether two histories are the same.
func (h History) Equal(o History) bool {
	return slices.EqualFunc(h, o, func(a, b Release) bool {
		return a.Moved.Equal(b.Moved) && a.Withdrawn.Equal(b.Withdrawn) && a.same(b)
	})
}

func (h History) current() int {
	return slices.IndexFunc(h, func(r Release) bool { return r.Withdrawn.IsZero() })
}

// Move returns the history after these packages joined the current release: each replaces the one of its name, and the
// others stay. Packages that a rollback withdrew together stay withdrawn, so that a rerun of a recipe does not undo it.
func (h History) Move(now time.Time, list []Package) (History, Status) {
	next := Release{Moved: second(now), Packages: slices.Clone(list)}
	if was, ok := h.Current(); ok {
		replaced := map[string]bool{}
		for _, p := range list {
			replaced[p.Name] = true
		}
		for _, p := range was.Packages {
			if !replaced[p.Name] {
				next.Packages = append(next.Packages, p)
			}
		}
		slices.SortFunc(next.Packages, byName)
		if was.same(next) {
			return h, Unchanged
		}
	}
	slices.SortFunc(next.Packages, byName)
	if h.HasWithdrawn(list) {
		return h, Withdrawn
	}
	moved := append(History{next}, h...)
	return moved.newest(), Moved
}

// newest leaves out the oldest releases of a history that is too long, or has too many packages in all.
func (h History) newest() History {
	h = h[:min(len(h), MaxReleases)]
	left := maxEntries
	for i, r := range h {
		if left -= len(r.Packages); left < 0 {
			return h[:max(i, 1)]
		}
	}
	return h
}

// HasWithdrawn reports whether a rollback took back a release with these packages.
func (h History) HasWithdrawn(list []Package) bool {
	return slices.ContainsFunc(h, func(r Release) bool { return !r.Withdrawn.IsZero() && r.Has(list) })
}

func byName(a, b Package) int { return strings.Compare(a.Name, b.Name) }

func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// Without returns the history after the package of a name left the channel.
func (h History) Without(now time.Time, name string) (History, error) {
	was, ok := h.Current()
	left := slices.DeleteFunc(slices.Clone(was.Packages), func(p Package) bool { return p.Name == name })
	switch {
	case !ok || len(left) == len(was.Packages):
		return nil, fmt.Errorf("the channel has no package %q", name)
	case len(left) == 0:
		return nil, fmt.Errorf("%s is the only package of the channel, which cannot be empty", name)
	}
	moved := append(History{{Moved: second(now), Packages: left}}, h...)
	return moved.newest(), nil
}

// ErrNoEarlier is the error for a rollback of a channel that has no earlier release.
var ErrNoEarlier = errors.New("the channel has no earlier release to go back to")

// Target returns the index of the release that a rollback goes to: the one before the current one, or the newest with a
// package whose digest begins with to, at least 8 digits with or without "sha256:".
func (h History) Target(to string) (int, error) {
	now := h.current()
	if to == "" {
		for i := now + 1; now >= 0 && i < len(h); i++ {
			if h[i].Withdrawn.IsZero() {
				return i, nil
			}
		}
		return 0, ErrNoEarlier
	}
	digits := strings.TrimPrefix(to, "sha256:")
	if len(digits) < 8 || len(digits) > 64 || strings.Trim(digits, "0123456789abcdef") != "" {
		return 0, fmt.Errorf("%.80q is not a digest, or the first 8 or more digits of one", to)
	}
	found, whole := -1, ""
	for i, r := range h {
		for _, p := range r.Packages {
			switch hex := p.Digest.Hex(); {
			case !strings.HasPrefix(hex, digits):
			case whole != "" && whole != hex:
				return 0, fmt.Errorf("%s is the beginning of two digests of the channel; give more digits", to)
			case found < 0:
				found, whole = i, hex
			}
		}
	}
	switch found {
	case -1:
		return 0, fmt.Errorf("no release of the channel has a package %s", to)
	case now:
		return 0, fmt.Errorf("the channel names the release with %s already", to)
	}
	return found, nil
}

// Rollback returns the history after the channel went to the release at an index: every newer one is withdrawn.
func (h History) Rollback(now time.Time, target int) History {
	h = slices.Clone(h)
	for i := range h[:target] {
		if h[i].Withdrawn.IsZero() {
			h[i].Withdrawn = second(now)
		}
	}
	h[target].Withdrawn = time.Time{}
	return h
}
