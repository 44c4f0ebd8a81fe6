package pipeline

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
)

// Shared is a second store, which the directories of several machines have in common. The name of an entry stands for everything
// that it depends on, so all entries of one name are equal. Directory checks an entry against its record before using it.
type Shared interface {
	// Fetch copies the files of an entry into dir, which is empty, and reports whether there is such an entry.
	Fetch(ctx context.Context, name, dir string) (found bool, err error)
	// Offer copies the finished entry in dir to the shared store, replacing an entry of that name, which may be damaged.
	Offer(ctx context.Context, name, dir string) error
}

// fetch takes an entry, whose lock is held, from the shared store; errAbsent if there is no usable one.
func (s *Directory) fetch(ctx context.Context, l *Limits, stage, name string) (Artifact, error) {
	if s.Shared == nil {
		return Artifact{}, errAbsent
	}
	dir := filepath.Join(s.dir, name+".fetched"+partialSuffix) // the partial entry may hold files to resume from
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o777)); err != nil {
		return Artifact{}, err
	}
	defer os.RemoveAll(dir)
	var rec *record
	var files []entryFile
	found, err := s.Shared.Fetch(ctx, name, dir)
	if found {
		rec, files, err = s.check(ctx, l, stage, name, dir)
	}
	switch {
	case ctx.Err() != nil:
		return Artifact{}, context.Cause(ctx)
	case found && err != nil:
		zerolog.Ctx(ctx).Warn().Err(err).Str("entry", name).Msg("the shared store is damaged: the entry is built here and replaced")
		return Artifact{}, errAbsent
	case !found:
		s.warn(ctx, err)
		return Artifact{}, errAbsent
	}
	if err := syncFiles(dir, append(files, entryFile{path: filepath.Join(dir, doneFile)})); err != nil {
		return Artifact{}, err
	}
	zerolog.Ctx(ctx).Info().Msg("nothing to do: taken from the shared store")
	return s.place(name, dir, rec.Digest)
}

// offer gives an entry that was built here to the shared store.
func (s *Directory) offer(ctx context.Context, a Artifact) {
	if s.Shared != nil {
		s.warn(ctx, s.Shared.Offer(ctx, a.Name, a.Path))
	}
}

// warn reports the first error of the shared store, which a run can do without.
func (s *Directory) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.warned.Do(func() {
			zerolog.Ctx(ctx).Warn().Err(err).Msg("the shared store cannot be used; its later errors are not reported")
		})
	}
}
