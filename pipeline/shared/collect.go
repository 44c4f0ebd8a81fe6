package shared

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/blob"
	"github.com/llmexport/llmexport/internal/sealed"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline"
)

const (
	pushPrefix     = "push-"
	collectingName = "collecting"
	// lease is how long a collection may take until others take it for dead.
	lease = 30 * time.Minute
	// longestPush is the age at which a push counts as dead, youngest that from which a blob that nothing refers to is removed.
	longestPush = 7 * 24 * time.Hour
	youngest    = time.Hour
	// look is the time between two looks at whether a collection has ended.
	look = time.Second
)

// Garbage is what [Store.Collect] removes.
type Garbage struct {
	// Names are those of entries, unfinished entries, checkpoints and notes.
	Names []string `json:"names"`
	// Blobs and Bytes are those that no name refers to any more. A registry removes blobs itself.
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
	// KeptNames and KeptBlobs stay.
	KeptNames int `json:"kept_names"`
	KeptBlobs int `json:"kept_blobs"`
}

// Collect removes what was last used before a time, except entries that a younger note refers to, and then the blobs that nothing
// refers to. Blobs of a running push stay: pushes announce what they refer to, and begin when the collection has ended. In a dry
// run it only lists.
func (s *Store) Collect(ctx context.Context, since time.Time, dry bool) (*Garbage, error) {
	sweeper, sweeps := s.blobs.(blob.Sweeper)
	if sweeps && !dry {
		release, err := s.hold(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	texts, err := s.blobs.Texts(ctx)
	if err != nil {
		return nil, err
	}
	kept, gone, err := s.sort(ctx, texts, since)
	if err != nil {
		return nil, err
	}
	live, broken, err := s.live(ctx, kept)
	if err != nil {
		return nil, err
	}
	g := &Garbage{Names: append(gone, broken...), KeptNames: len(kept) - len(broken)}
	slices.Sort(g.Names)
	if !dry {
		for _, name := range g.Names {
			if err := s.blobs.RemoveText(ctx, name); err != nil {
				return g, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if !sweeps {
		return g, nil
	}
	return g, s.sweep(ctx, sweeper, live, dry, g)
}

// sort separates the names that stay from those that go.
func (s *Store) sort(ctx context.Context, texts []blob.Info, since time.Time) (kept, gone []string, err error) {
	referred := map[string]bool{}
	for _, t := range texts {
		if !strings.HasPrefix(t.Name, notePrefix) || t.Time.Before(since) {
			continue
		}
		n, err := s.note(ctx, t.Name)
		if err != nil && !damaged(err) {
			return nil, nil, err
		}
		for _, name := range n.Entries {
			referred[name] = true
		}
	}
	for _, t := range texts {
		if t.Name == formatName || t.Name == collectingName {
			continue
		}
		old := t.Time.Before(since)
		if strings.HasPrefix(t.Name, pushPrefix) {
			old = s.now().Sub(t.Time) > longestPush
		}
		if old && !referred[t.Name] {
			gone = append(gone, t.Name)
		} else {
			kept = append(kept, t.Name)
		}
	}
	return kept, gone, nil
}

// live returns the blobs that names refer to, and the names whose texts are damaged, which are of no use.
func (s *Store) live(ctx context.Context, names []string) (live map[string]bool, broken []string, err error) {
	live = map[string]bool{}
	for _, name := range names {
		var sums []string
		var err error
		switch {
		case strings.HasPrefix(name, notePrefix):
			_, err = s.note(ctx, name)
		case strings.HasPrefix(name, pushPrefix):
			var text []byte
			if text, err = s.blobs.Text(ctx, name, maxText); err == nil {
				err = sealed.Unmarshal(name, text, &sums)
			}
		default:
			var rec *pipeline.Record
			if _, rec, err = s.record(ctx, name); rec != nil {
				sums = sumsOf(rec.Files)
			}
		}
		switch {
		case err != nil && errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil && damaged(err):
			broken = append(broken, name)
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, sum := range sums {
			live[sum] = true
		}
	}
	return live, broken, nil
}

// sweep removes the blobs that are not live.
func (s *Store) sweep(ctx context.Context, sweeper blob.Sweeper, live map[string]bool, dry bool, g *Garbage) error {
	blobs, err := sweeper.Blobs(ctx)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if live[b.Name] || s.now().Sub(b.Time) < youngest {
			g.KeptBlobs++
			continue
		}
		g.Blobs++
		g.Bytes += b.Size
		if dry {
			continue
		}
		if err := sweeper.RemoveBlob(ctx, b.Name); err != nil {
			return fmt.Errorf("blob %s: %w", b.Name, err)
		}
	}
	if dry {
		return nil
	}
	return sweeper.Tidy(ctx, s.now().Add(-longestPush))
}

// hold makes pushes wait until the returned function is called, or the lease has ended.
func (s *Store) hold(ctx context.Context) (release func(), err error) {
	switch other, err := s.collecting(ctx); {
	case err != nil:
		return nil, err
	case other:
		return nil, fmt.Errorf("somebody else is collecting garbage in %s", s)
	}
	text, err := sealed.Marshal(collectingName, s.now().Add(lease))
	if err == nil {
		err = s.blobs.SetText(ctx, collectingName, text, nil)
	}
	return func() { _ = s.blobs.RemoveText(transfer.Once(context.WithoutCancel(ctx)), collectingName) }, err
}

// collecting reports whether somebody collects garbage.
func (s *Store) collecting(ctx context.Context) (bool, error) {
	if _, sweeps := s.blobs.(blob.Sweeper); !sweeps {
		return false, nil
	}
	text, err := s.blobs.Text(ctx, collectingName, maxNote)
	var until time.Time
	if err == nil {
		err = sealed.Unmarshal(collectingName, text, &until)
	}
	if err != nil && damaged(err) {
		return false, nil
	}
	return err == nil && s.now().Before(until), err
}

// announce keeps the blobs of files from being collected until the returned function is called. It waits for a collection to end.
func (s *Store) announce(ctx context.Context, files []pipeline.RecordedFile) (done func(), err error) {
	if _, sweeps := s.blobs.(blob.Sweeper); !sweeps {
		return func() {}, nil
	}
	name := pushPrefix + random()
	text, err := sealed.Marshal(name, sumsOf(files))
	if err == nil {
		err = s.blobs.SetText(ctx, name, text, nil)
	}
	if err != nil {
		return nil, err
	}
	done = func() { _ = s.blobs.RemoveText(transfer.Once(context.WithoutCancel(ctx)), name) }
	for told := false; ; told = true {
		other, err := s.collecting(ctx)
		if err != nil {
			done()
			return nil, err
		}
		if !other {
			return done, nil
		}
		if !told {
			zerolog.Ctx(ctx).Info().Msg("waiting for the garbage collection of the shared store to end")
		}
		select {
		case <-ctx.Done():
			done()
			return nil, context.Cause(ctx)
		case <-time.After(look):
		}
	}
}
