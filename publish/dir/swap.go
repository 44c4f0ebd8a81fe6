package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// workplace is the directory next to the target in which a package is made.
type workplace struct {
	work  string // removed at the end
	whole string // the package: work or a directory in it
	keep  bool   // keep work if the package was not shown, for a later run to continue
}

// staged is a directory whose lock is held, and a package next to it that may replace it.
type staged struct {
	workplace
	d       Place
	target  string
	was     occupant
	receipt place.Receipt
	shown   bool
	old     string   // path of the replaced package, until Close
	signing string   // directory with the new signature, was.sign
	parents []string // that were made
	unlock  func()
	log     *zerolog.Logger
}

// lockFile is held by the process that publishes to target.
func lockFile(target string) string {
	return filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".llmexport-lock")
}

// begin locks the target, cleans up after killed runs, and compares the contents of the target with the package of a
// digest and signature. Close must be called unless it returns an error.
func (d Place) begin(ctx context.Context, target string, sum digest.Digest, signature []byte, b workplace) (_ *staged, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := &staged{workplace: b, d: d, target: target, log: zerolog.Ctx(ctx)}
	defer func() {
		if err != nil {
			s.keep = true // it is not ours yet
			err = errors.Join(err, s.Close())
		}
	}()
	if s.parents, err = makeParents(filepath.Dir(target)); err != nil {
		return nil, err
	}
	if s.unlock, err = disk.Lock(ctx, lockFile(target), "waiting for another publisher"); err != nil {
		return nil, err
	}
	if err := d.repair(ctx, target, b.work); err != nil {
		return nil, err
	}
	if s.was, err = d.inspect(ctx, target, sum, signature); err != nil || s.was.sign == nil {
		return s, err
	}
	return s, s.stageSignature(ctx)
}

func (s *staged) Commit(ctx context.Context) (place.Receipt, error) {
	if s.shown || s.was.same && s.was.sign == nil {
		return s.receipt, nil
	}
	if err := ctx.Err(); err != nil {
		return place.Receipt{}, err
	}
	if err := s.show(); err != nil {
		return place.Receipt{}, err
	}
	return s.receipt, nil
}

// show puts the package in place of the target. The context is not checked between the steps: they are a few renames,
// and stopping between them would not help.
func (s *staged) show() (err error) {
	if s.was.same {
		return s.showSignature()
	}
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()
	old := s.target + oldMark + suffix()
	switch {
	case s.was.old != nil:
		if err := s.d.do("move aside", func() error { return os.Rename(s.target, old) }); err != nil {
			return err
		}
		undo = append(undo, func() error { return os.Rename(old, s.target) })
		// A file may have been put there during the copy, which takes minutes.
		if err := onlyListed(s.was.old, old); err != nil {
			return err
		}
	case s.was.empty != 0:
		if err := s.d.do("remove empty", func() error { return os.Remove(s.target) }); err != nil {
			return err
		}
		undo = append(undo, func() error { return os.Mkdir(s.target, s.was.empty.Perm()) })
	}
	if err := s.d.do("move in", func() error { return os.Rename(s.whole, s.target) }); err != nil {
		return err
	}
	undo = append(undo, func() error { return os.Rename(s.target, s.whole) })
	if err := s.d.do("sync parent", func() error { return disk.SyncDir(filepath.Dir(s.target)) }); err != nil {
		return err
	}
	s.shown = true
	if s.was.old != nil {
		s.old = old
	}
	return nil
}

// Revert implements Staged. If it is killed, the state is as after a kill in Commit.
func (s *staged) Revert(context.Context) error {
	if !s.shown {
		return nil
	}
	if err := s.revert(); err != nil {
		return fmt.Errorf("%s shows the new package: %w", s.d.Path, err)
	}
	return nil
}

func (s *staged) revert() error {
	if s.was.same {
		return s.revertSignature()
	}
	m, err := manifest.Open(s.target)
	if err != nil {
		return err
	}
	if err := onlyListed(m, s.target); err != nil {
		return err
	}
	if err := s.d.do("move out", func() error { return os.Rename(s.target, s.whole) }); err != nil {
		return err
	}
	switch {
	case s.old != "":
		err = s.d.do("move back", func() error { return os.Rename(s.old, s.target) })
	case s.was.empty != 0:
		err = s.d.do("make empty", func() error { return os.Mkdir(s.target, s.was.empty.Perm()) })
	}
	if err != nil {
		return errors.Join(err, os.Rename(s.whole, s.target))
	}
	s.shown, s.old = false, ""
	return s.d.do("sync parent back", func() error { return disk.SyncDir(filepath.Dir(s.target)) })
}

func (s *staged) Close() error {
	var err error
	if s.old != "" {
		if derr := s.d.discard(s.old, s.target); derr != nil {
			s.log.Warn().Err(derr).Msg("the replaced package could not be removed; the next publish tries again")
		}
	}
	if s.shown || s.was.same || !s.keep {
		err = os.RemoveAll(s.work)
	} else {
		removeEmpty([]string{s.work, filepath.Join(s.work, wholeName), filepath.Join(s.work, partsName)})
	}
	if s.signing != "" {
		err = errors.Join(err, os.RemoveAll(s.signing))
	}
	if s.unlock != nil {
		s.unlock()
	}
	if !s.shown {
		removeEmpty(s.parents)
	}
	return err
}

// occupant is the previous contents of the target.
type occupant struct {
	same      bool               // the package itself, intact
	old       *manifest.Manifest // another package, which may be replaced
	signature []byte             // signature of old
	sign      []byte             // signature to add to the same package, nil if it has it
	empty     fs.FileMode        // mode of an empty directory, else 0
}

// kept returns the signature that stays when the package of a digest, without a signature, is put there.
func (o occupant) kept(sum digest.Digest) []byte {
	if o.old == nil || o.old.Digest != sum {
		return nil
	}
	return o.signature
}

// status returns the effect of putting a package there.
func (o occupant) status() place.Status {
	switch {
	case o.same && o.sign == nil:
		return place.Unchanged
	case o.old != nil:
		return place.Replaced
	}
	return place.Published
}

// inspect compares the contents of the target with the package of a digest and signature, which may be nil.
func (d Place) inspect(ctx context.Context, target string, sum digest.Digest, signature []byte) (occupant, error) {
	info, err := os.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return occupant{}, nil
	}
	if err != nil {
		return occupant{}, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return occupant{}, errors.New("is a symbolic link, which is never replaced; name the directory itself")
	}
	if !info.IsDir() {
		return occupant{}, errors.New("exists and is not a directory")
	}
	entries, err := os.ReadDir(target)
	if err != nil {
		return occupant{}, err
	}
	if len(entries) == 0 {
		return occupant{empty: info.Mode()}, notWorking(info)
	}
	m, err := manifest.Open(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return occupant{}, errors.New("contains files but no package, so it is not replaced")
	case err != nil:
		return occupant{}, fmt.Errorf("contains no package that llmexport can read, so it is not replaced: %w", err)
	}
	if m.Digest == sum {
		err = m.VerifyFiles(ctx, target)
		if err == nil {
			return d.inspectSignature(occupant{same: true, old: m}, target, signature)
		}
		if !errors.Is(err, tensor.ErrCorrupt) {
			return occupant{}, err
		}
		err = fmt.Errorf("contains this package, damaged; set replace to rewrite it: %w", err)
	} else {
		err = fmt.Errorf("contains another package, %s; set replace to replace it", m.Digest)
	}
	// Errors that --replace does not fix come first.
	if err := onlyListed(m, target); err != nil {
		return occupant{}, err
	}
	if !d.Replace {
		return occupant{}, err
	}
	if err := notWorking(info); err != nil {
		return occupant{}, err
	}
	was, err := manifest.ReadSignature(target)
	return occupant{old: m, signature: was}, err
}

// notWorking refuses to replace the working directory: processes working in it, such as the calling shell, would be
// left in a removed directory.
func notWorking(target fs.FileInfo) error {
	here, err := os.Stat(".")
	if err == nil && os.SameFile(here, target) {
		err = errors.New("is the working directory, which cannot be replaced; name a new directory")
	}
	return err
}

// onlyListed rejects a package whose removal would remove more than was published.
func onlyListed(m *manifest.Manifest, dir string) error {
	extra, err := m.Extra(dir)
	if err != nil {
		return err
	}
	if len(extra) > 0 {
		return fmt.Errorf("contains files that are not part of the package, %q first of %d; move them away before replacing it", extra[0], len(extra))
	}
	return nil
}
