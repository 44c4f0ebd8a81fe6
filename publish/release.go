package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/quant"
)

// Shown is a package that a place shows, for [MoveChannels].
type Shown struct {
	place   Place
	release channel.Package
}

// shownJSON is a Shown in JSON. Another process that has the credentials can open the place of it.
type shownJSON struct {
	// Target has no placeholders, and its directory is absolute.
	Target  Target          `json:"target"`
	Package channel.Package `json:"package"`
}

// MarshalJSON implements json.Marshaler.
func (s Shown) MarshalJSON() ([]byte, error) {
	t := s.place.Target
	if d, ok := s.place.Store.(dir.Place); ok {
		abs, err := filepath.Abs(d.Path)
		if err != nil {
			return nil, err
		}
		t.Dir = filepath.ToSlash(abs)
	}
	return json.Marshal(shownJSON{t, s.release})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Shown) UnmarshalJSON(b []byte) error {
	var x shownJSON
	if err := jsondoc.Decode(b, &x); err != nil {
		return err
	}
	if x.Target.Channel == "" {
		return errors.New("a package that a place shows has no channel")
	}
	store, err := New(x.Target, "")
	if err != nil {
		return err
	}
	*s = Shown{Place{store, x.Target}, x.Package}
	return nil
}

// Channel returns the shelf and the name of the channel that may move to the package.
func (s Shown) Channel() (shelf, name string, err error) {
	on, err := s.place.shelf()
	if err != nil {
		return "", "", place.ErrorAt(s.place, err)
	}
	return on.String(), s.place.Target.Channel, nil
}

// ShownAt describes a package in the places that [All] has published it to, whose channels may then move.
func ShownAt(places []Place, p place.Package, receipts []place.Receipt) ([]Shown, error) {
	if !slices.ContainsFunc(places, func(p Place) bool { return p.Target.Channel != "" }) || len(receipts) != len(places) {
		return nil, nil
	}
	facts, err := factsOf(p)
	if err != nil {
		return nil, err
	}
	var list []Shown
	for i, at := range places {
		if at.Target.Channel == "" {
			continue
		}
		s, err := at.shelf()
		if err != nil {
			return nil, err
		}
		list = append(list, Shown{at, channel.Package{Name: p.Manifest.Name, Digest: receipts[i].Digest, At: s.At(receipts[i]), Facts: facts}})
	}
	return list, nil
}

// shelf returns the shelf of a place that has channels.
func (p Place) shelf() (place.Shelf, error) {
	s, ok := p.Store.(place.Shelved)
	if !ok {
		return nil, fmt.Errorf("%s has no channels", p)
	}
	on, _, err := s.Shelf()
	return on, err
}

// channelReady fails if the channel of the place could not move.
func (p Place) channelReady(ctx context.Context) error {
	if p.Target.Channel == "" {
		return nil
	}
	s, err := p.shelf()
	if err != nil {
		return err
	}
	if err := s.Ready(ctx, p.Target.Channel); err != nil {
		return fmt.Errorf("channel %s: %w", p.Target.Channel, err)
	}
	return nil
}

// spareChannels refuses to replace a package that a channel names: it would be gone while the channel still named it.
func spareChannels(ctx context.Context, places []Place, p place.Package) error {
	for _, at := range places {
		s, ok := at.Store.(place.Shelved)
		if !ok || !at.Target.Replace {
			continue
		}
		on, position, err := s.Shelf()
		if err != nil || position == "" {
			continue // Stage reports errors of the place
		}
		if err := spare(ctx, on, position, p.Manifest); err != nil {
			return place.ErrorAt(at, err)
		}
	}
	return nil
}

func spare(ctx context.Context, s place.Shelf, position string, m *manifest.Manifest) error {
	names, err := s.Channels(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		h, err := s.History(ctx, name)
		if err != nil {
			return err
		}
		now, _ := h.Current()
		for _, p := range now.Packages {
			if p.At == position && p.Digest != m.Digest {
				return fmt.Errorf("channel %s names the package there, %s: give the new one a place of its own, such as %s/{commit:8}",
					name, p.Digest, s)
			}
		}
	}
	return nil
}

// Move is the effect of [MoveChannels] on a channel.
type Move struct {
	Place   string         `json:"place"`
	Channel string         `json:"channel"`
	Status  channel.Status `json:"status"`
	// Packages are the names of all packages that the channel names now.
	Packages []string `json:"packages"`
}

// MoveChannels moves the channels of all places to the packages that were published there. Packages that share a channel,
// such as the variants of a recipe, move together, and the other packages of the channel stay in it. The channels of places
// move one after the other: after an error, calling it again moves the rest.
func MoveChannels(ctx context.Context, list []Shown) (moves []Move, err error) {
	type group struct {
		shelf    place.Shelf
		name     string
		packages []channel.Package
	}
	var groups []*group
	for _, x := range list {
		s, err := x.place.shelf()
		if err != nil {
			return nil, place.ErrorAt(x.place, err)
		}
		name := x.place.Target.Channel
		i := slices.IndexFunc(groups, func(g *group) bool { return g.name == name && g.shelf.String() == s.String() })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{shelf: s, name: name})
		}
		g := groups[i]
		if slices.ContainsFunc(g.packages, func(p channel.Package) bool { return p.Name == x.release.Name }) {
			return nil, fmt.Errorf("%s is in %s twice, and channel %s can name it once; give the places channels of their own", x.release.Name, s, name)
		}
		g.packages = append(g.packages, x.release)
	}
	var errs []error
	for _, g := range groups {
		m, err := moveChannel(ctx, g.shelf, g.name, g.packages)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: channel %s did not move: %w", g.shelf, g.name, err))
			continue
		}
		moves = append(moves, m)
	}
	return moves, errors.Join(errs...)
}

func moveChannel(ctx context.Context, s place.Shelf, name string, list []channel.Package) (Move, error) {
	m := Move{Place: s.String(), Channel: name}
	err := s.Update(ctx, name, func(h channel.History) (channel.History, error) {
		next, status := h.Move(time.Now(), list)
		m.Status, m.Packages = status, nil
		now, _ := next.Current()
		for _, p := range now.Packages {
			m.Packages = append(m.Packages, p.Name)
		}
		return next, nil
	})
	if err != nil {
		return m, err
	}
	log := zerolog.Ctx(ctx)
	if m.Status == channel.Withdrawn {
		log.Warn().Str("place", m.Place).Str("channel", name).
			Msg("the channel stays: a rollback withdrew this release; llmexport rollback --to DIGEST brings it back")
	} else {
		log.Info().Str("place", m.Place).Str("channel", name).Strs("packages", m.Packages).Msg("channel " + string(m.Status))
	}
	return m, nil
}

// MovedOnError is the error for a channel that no longer names the packages that are to be withdrawn from it.
type MovedOnError struct{ Shelf, Channel string }

func (e *MovedOnError) Error() string {
	return fmt.Sprintf("%s: channel %s names other packages by now, so it stays", e.Shelf, e.Channel)
}

// Withdraw moves the channel that packages share back to the release before the one with them. Calling it again changes nothing.
// A channel that has moved on stays: that is a [MovedOnError].
func Withdraw(ctx context.Context, list []Shown) (m Move, err error) {
	if len(list) == 0 {
		return m, errors.New("internal error: no packages to withdraw")
	}
	s, err := list[0].place.shelf()
	if err != nil {
		return m, place.ErrorAt(list[0].place, err)
	}
	m = Move{Place: s.String(), Channel: list[0].place.Target.Channel, Status: channel.Withdrawn}
	packages := make([]channel.Package, len(list))
	for i, x := range list {
		packages[i] = x.release
	}
	h, err := s.History(ctx, m.Channel)
	if err != nil {
		return m, fmt.Errorf("%s: channel %s: %w", s, m.Channel, err)
	}
	now, _ := h.Current()
	if now.Has(packages) {
		if now, _, err = place.Rollback(ctx, s, m.Channel, "", time.Now()); err != nil {
			return m, fmt.Errorf("%s: channel %s: %w", s, m.Channel, err)
		}
	} else if !h.HasWithdrawn(packages) {
		return m, &MovedOnError{s.String(), m.Channel}
	}
	for _, p := range now.Packages {
		m.Packages = append(m.Packages, p.Name)
	}
	return m, nil
}

// maxReport bounds a report in bytes.
const maxReport = 16 << 20

// factsOf reads what a package tells of itself.
func factsOf(p place.Package) (channel.Facts, error) {
	m := p.Manifest
	f := channel.Facts{Bytes: m.Bytes(), Bits: bitsOf(m.Tensors), Engine: m.MinimumEngine, Backends: m.Target.Backends, Verified: m.Verified}
	if kl, ok := m.Metrics["kl"]; ok && kl.Value >= 0 && !math.IsInf(kl.Value, 0) {
		f.KL = &kl.Value
	}
	b, err := disk.ReadFile(filepath.Join(p.Dir, about.ReportName), maxReport)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil // a package of an earlier release
	}
	var r about.Report
	if err == nil {
		err = jsondoc.Decode(b, &r)
	}
	if err != nil {
		return f, fmt.Errorf("%s: %w", about.ReportName, err)
	}
	f.DeviceBytes = max(r.DeviceBytes, 0)
	if r.PackageBytes > 0 {
		f.Bytes = r.PackageBytes
	}
	return f, nil
}

// longRow is a number of columns for which the scale of a whole row does not count.
const longRow = 4096

// bitsOf returns the mean number of bits that store a weight of a matrix, scales included, to two digits; 0 if there are no
// matrices.
func bitsOf(tensors []manifest.Tensor) float64 {
	var bits, weights float64
	for _, s := range about.Specs(tensors) {
		spec, err := quant.ParseSpec(s.Spec)
		if err != nil {
			continue // a norm
		}
		l, err := spec.Layout(1, longRow)
		if err != nil {
			continue
		}
		bits += float64(8 * s.Bytes)
		weights += 8 * float64(s.Bytes) / (8 * float64(l.Codes+l.Alpha) / longRow)
	}
	if weights == 0 {
		return 0
	}
	return math.Round(100*bits/weights) / 100
}
