package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// Place is a store and the publish entry that names it.
type Place struct {
	place.Store
	Target Target
}

// Places opens the stores of publish entries for a package with these values. Relative directories start at baseDir. Two
// entries for the same place are an error, and so are directories inside each other.
func Places(targets []Target, baseDir string, v Values) ([]Place, error) {
	var places []Place
	for i, t := range targets {
		t, err := t.Filled(v)
		if err != nil {
			return nil, &EntryError{i, err}
		}
		s, err := New(t, baseDir)
		if err != nil {
			return nil, &EntryError{i, err}
		}
		if j := slices.IndexFunc(places, func(p Place) bool { return p.String() == s.String() }); j >= 0 {
			return nil, &EntryError{i, fmt.Errorf("%s is named twice", s)}
		}
		if d, ok := s.(dir.Place); ok {
			for _, p := range places {
				if other, ok := p.Store.(dir.Place); ok {
					if err := dir.Apart(other.Path, d.Path); err != nil {
						return nil, &EntryError{i, err}
					}
				}
			}
		}
		places = append(places, Place{s, t})
	}
	return places, nil
}

// EntryError is an error in a publish entry.
type EntryError struct {
	Entry int // from 0
	Err   error
}

func (e *EntryError) Error() string { return e.Err.Error() }
func (e *EntryError) Unwrap() error { return e.Err }

// undoTime bounds the time to revert committed places after the context has ended.
const undoTime = 2 * time.Minute

// All publishes a package to several places, all or nothing as far as their protocols allow: it is staged everywhere
// before the first place shows it, and if one place fails, the others are reverted. Places that cannot be reverted are
// committed last. The receipts are in the order of the places. After an error, they are for the places that show the
// package, and the error describes the state of every place.
//
// A place that already shows the package is left alone, so calling All again after a killed run completes it.
func All(ctx context.Context, places []Place, p place.Package) (receipts []place.Receipt, err error) {
	if err := CheckTerms(p, places); err != nil {
		return nil, err
	}
	if err := spareChannels(ctx, places, p); err != nil {
		return nil, err
	}
	staged := make([]place.Staged, len(places))
	defer func() {
		for _, s := range slices.Backward(staged) {
			if s != nil {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	for i, to := range places {
		if staged[i], err = to.Stage(ctx, p); err != nil {
			staged[i], err = nil, place.ErrorAt(to, err) // the interface could contain a nil pointer
			if len(places) > 1 {
				err = fmt.Errorf("%w; no place shows it", err)
			}
			return nil, err
		}
	}
	shown := make([]*place.Receipt, len(places))
	var committed []int
	for _, i := range commitOrder(places) {
		r, err := commit(ctx, places[i], staged[i])
		if err != nil {
			err = undo(ctx, places, staged, shown, committed, i, err)
			return collect(shown), err
		}
		shown[i], committed = &r, append(committed, i)
		zerolog.Ctx(ctx).Info().Str("store", r.Store).Str("to", r.Ref).Str("status", string(r.Status)).Int64("bytes", r.Bytes).
			Int64("uploaded", r.Uploaded).Str("digest", string(r.Digest)).Msg("published")
	}
	return collect(shown), nil
}

// The context is checked between places, where stopping is safe.
func commit(ctx context.Context, to Place, s place.Staged) (place.Receipt, error) {
	if ctx.Err() != nil {
		return place.Receipt{}, context.Cause(ctx)
	}
	r, err := s.Commit(ctx)
	return r, place.ErrorAt(to, err)
}

// commitOrder returns the order of the commits: places that cannot be reverted come last.
func commitOrder(places []Place) []int {
	var first, last []int
	for i, p := range places {
		if p.Target.permanent() {
			last = append(last, i)
		} else {
			first = append(first, i)
		}
	}
	return append(first, last...)
}

// undo reverts the committed places, the last one first, after place failed with err. The error describes the state of
// each place.
func undo(ctx context.Context, places []Place, staged []place.Staged, shown []*place.Receipt, committed []int, failed int, err error) error {
	if len(places) == 1 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	state := make([]string, len(places))
	for i := range state {
		state[i] = "unchanged"
	}
	state[failed] = "failed"
	for _, i := range slices.Backward(committed) {
		if shown[i].Status == place.Unchanged {
			state[i] = "unchanged, already had the package"
			continue
		}
		if rerr := staged[i].Revert(ctx); rerr != nil {
			state[i] = fmt.Sprintf("still shows the package, reverting failed: %v", rerr)
			continue
		}
		shown[i] = nil
		state[i] = "reverted"
	}
	for i, p := range places {
		state[i] = fmt.Sprintf("%s: %s", p, state[i])
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(state, "; "))
}

func collect(shown []*place.Receipt) []place.Receipt {
	var list []place.Receipt
	for _, r := range shown {
		if r != nil {
			list = append(list, *r)
		}
	}
	return list
}

// Ready checks whether every place can take a package now; see [place.Store].
func Ready(ctx context.Context, places []Place, could func(*manifest.Manifest) bool) error {
	var errs []error
	for _, p := range places {
		err := p.Ready(ctx, could)
		if err == nil {
			err = p.channelReady(ctx)
		}
		errs = append(errs, place.ErrorAt(p, err))
	}
	return errors.Join(errs...)
}

// ChannelsReady checks whether the channels of every place could move; see [place.Shelf].
func ChannelsReady(ctx context.Context, places []Place) error {
	var errs []error
	for _, p := range places {
		errs = append(errs, place.ErrorAt(p, p.channelReady(ctx)))
	}
	return errors.Join(errs...)
}

// PlaceDiff is what publishing would change in one place.
type PlaceDiff struct {
	Place  string `json:"place"`
	Public bool   `json:"public"`
	// Channel would move to the package.
	Channel string `json:"channel,omitempty"`
	place.Diff
}

// Changes returns what [All] would change. It changes nothing, and fails where All would, as far as that can be known.
func Changes(ctx context.Context, places []Place, p place.Package) ([]PlaceDiff, error) {
	if err := CheckTerms(p, places); err != nil {
		return nil, err
	}
	if err := spareChannels(ctx, places, p); err != nil {
		return nil, err
	}
	var list []PlaceDiff
	for _, at := range places {
		d, err := at.Diff(ctx, p)
		if err != nil {
			return nil, place.ErrorAt(at, err)
		}
		list = append(list, PlaceDiff{at.String(), at.Public(), at.Target.Channel, d})
	}
	return list, nil
}
