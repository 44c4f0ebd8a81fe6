package pipeline

import (
	"context"
	"errors"
	"io/fs"
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
	// Resume copies into dir, which is empty, what another machine has offered of an entry that it was building, if that is more
	// than a number of bytes, and reports whether it has.
	Resume(ctx context.Context, name, dir string, more int64) (found bool, err error)
	// Follow offers the files in dir of an entry under construction again and again until ctx ends. The files are those whose
	// names in dir the function accepts, and all files in such directories.
	Follow(ctx context.Context, name, dir string, accept func(name string) bool)
}

// fetch takes an entry, whose lock is held, from the shared store; errAbsent if there is no usable one, joined with the reason why
// the store could not be asked.
func (s *Directory) fetch(ctx context.Context, l *Limits, stage, name string) (Artifact, error) {
	if s.Shared == nil {
		return Artifact{}, errAbsent
	}
	dir := filepath.Join(s.dir, name+".fetched"+partialSuffix) // the partial entry may hold files to resume from
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o777)); err != nil {
		return Artifact{}, err
	}
	defer os.RemoveAll(dir)
	var rec *Record
	var files []entryFile
	found, err := s.Shared.Fetch(ctx, name, dir)
	if found && err == nil {
		rec, files, err = s.check(ctx, l, stage, name, dir)
	}
	switch {
	case ctx.Err() != nil:
		return Artifact{}, context.Cause(ctx)
	case found && err != nil:
		zerolog.Ctx(ctx).Warn().Err(err).Str("entry", name).Msg("the shared store is damaged: the entry is built here and replaced")
		return Artifact{}, errAbsent
	case err != nil:
		s.warn(ctx, err)
		return Artifact{}, errors.Join(errAbsent, err)
	case !found:
		return Artifact{}, errAbsent
	}
	if err := syncFiles(dir, append(files, entryFile{path: filepath.Join(dir, DoneFile)})); err != nil {
		return Artifact{}, err
	}
	zerolog.Ctx(ctx).Info().Msg("nothing to do: taken from the shared store")
	return s.place(name, dir, rec.Digest, Pulled)
}

// resume takes what another machine has left of an entry, whose lock is held, if that is more than what was left here.
func (s *Directory) resume(ctx context.Context, p *Partial, keep []string) error {
	if s.Shared == nil || len(keep) == 0 {
		return nil
	}
	here := int64(0)
	err := filepath.WalkDir(p.Dir, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case filepath.Dir(at) == p.Dir && !kept(keep, e.Name()) && e.IsDir():
			return fs.SkipDir
		case filepath.Dir(at) == p.Dir && !kept(keep, e.Name()):
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			here += info.Size()
		}
		return nil
	})
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, p.Name+".resumed"+partialSuffix)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o777)); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	found, err := s.Shared.Resume(ctx, p.Name, dir, here)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && found:
		zerolog.Ctx(ctx).Warn().Err(err).Str("entry", p.Name).Msg("the shared store is damaged: the unfinished entry there is not used")
		return nil
	case !found || err != nil:
		s.warn(ctx, err)
		return nil
	}
	zerolog.Ctx(ctx).Info().Str("entry", p.Name).Msg("resuming what another machine has begun")
	return errors.Join(os.RemoveAll(p.Dir), os.Rename(dir, p.Dir))
}

// follow offers what a build could be resumed from, until the returned function is called.
func (s *Directory) follow(ctx context.Context, p *Partial, keep []string) (stop func()) {
	if s.Shared == nil || len(keep) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Shared.Follow(ctx, p.Name, p.Dir, func(name string) bool { return kept(keep, name) })
	}()
	return func() {
		cancel()
		<-done
	}
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
