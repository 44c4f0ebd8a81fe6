package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Dir publishes to a directory of this machine. The package is built beside it and renamed, so that the
// directory holds a whole package at every moment but one: between the two renames of a replacement it
// is absent, and a run killed there is repaired by the next Publish to the same place.
//
//	<path>.tmp-<16 hex digits>       being built or removed, never looked at
//	<path>.old-<16 hex digits>       the whole package that is being replaced
//	.<name>.llmexport-lock           held by the process that publishes here, removed after it
//
// Files are copied and never hard-linked: users edit config.json in place, and a link would carry the
// edit into the files that the next run starts from.
type Dir struct {
	// Path is the directory. Its parent is created.
	Path string
	// Replace allows a package that is already there to be replaced. It never allows anything else to be:
	// a file, a link, a directory without a manifest, or a package with files that it does not list.
	Replace bool

	// step is called before every action on the disk; tests let it fail, cancel or exit.
	step func(action string) error
}

// String names the directory.
func (d Dir) String() string { return "dir " + d.Path }

// Public is false: who can read the directory is not ours to know.
func (d Dir) Public() bool { return false }

// Diff compares the directory with the package.
func (d Dir) Diff(ctx context.Context, p Package) (Diff, error) {
	return Diff{}, errors.ErrUnsupported
}

// Stage builds the package beside the directory. Two publishers of one directory take turns. An empty
// directory is used; when anything else but this package is there, see [Dir.Replace].
func (d Dir) Stage(ctx context.Context, p Package) (Staged, error) {
	s, err := d.stage(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Path, err)
	}
	return s, nil
}

// stagedDir is a package beside the directory that it will be. Its lock is held.
type stagedDir struct {
	d           Dir
	target, tmp string
	was         occupant
	receipt     Receipt
	committed   bool
	parents     []string // that were made
	unlock      func()
}

func (d Dir) stage(ctx context.Context, p Package) (_ *stagedDir, err error) {
	if d.Path == "" {
		return nil, errors.New("no directory is given")
	}
	target, err := filepath.Abs(d.Path)
	if err != nil {
		return nil, err
	}
	if filepath.Dir(target) == target {
		return nil, errors.New("a file system's root holds no package")
	}
	data, sum, err := p.Manifest.Seal()
	if err != nil {
		return nil, err
	}
	if err := apart(p.Dir, target); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := &stagedDir{d: d, target: target, tmp: target + tmpMark + suffix(), receipt: Receipt{
		Status: Unchanged, Store: "dir", Ref: d.Path, Digest: sum,
		Files: len(p.Manifest.Files) + 1, Bytes: p.Manifest.Bytes() + int64(len(data)),
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.parents, err = makeParents(filepath.Dir(target)); err != nil {
		return nil, err
	}
	if s.unlock, err = lock(ctx, target); err != nil {
		return nil, err
	}
	if err := d.repair(ctx, target); err != nil {
		return nil, err
	}
	if s.was, err = d.inspect(ctx, target, sum); err != nil {
		return nil, err
	}
	if s.was.same {
		return s, nil
	}
	s.receipt.Status, s.receipt.Uploaded = Published, s.receipt.Bytes
	if s.was.old != nil {
		s.receipt.Status = Replaced
	}
	return s, d.fill(ctx, s.tmp, p, data)
}

// Commit implements Staged.
func (s *stagedDir) Commit(ctx context.Context) (Receipt, error) {
	if s.committed || s.was.same {
		return s.receipt, nil
	}
	err := ctx.Err()
	if err == nil {
		err = s.d.swap(ctx, s.tmp, s.target, s.was)
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("%s: %w", s.d.Path, err)
	}
	s.committed = true
	return s.receipt, nil
}

// Revert implements Staged.
func (s *stagedDir) Revert(ctx context.Context) error {
	return errors.ErrUnsupported
}

// Close implements Staged.
func (s *stagedDir) Close() error {
	var err error
	if !s.committed {
		err = os.RemoveAll(s.tmp)
	}
	if s.unlock != nil {
		s.unlock()
	}
	if !s.committed {
		removeEmpty(s.parents)
	}
	return err
}

// occupant is what the target held before.
type occupant struct {
	same  bool               // the package itself, intact
	old   *manifest.Manifest // a package that may be replaced
	empty fs.FileMode        // mode of an empty directory, else 0
}

func (d Dir) inspect(ctx context.Context, target string, sum manifest.Digest) (occupant, error) {
	info, err := os.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return occupant{}, nil
	}
	if err != nil {
		return occupant{}, err
	}
	if !info.IsDir() {
		return occupant{}, errors.New("exists and is not a directory; it is left alone")
	}
	entries, err := os.ReadDir(target)
	if err != nil {
		return occupant{}, err
	}
	if len(entries) == 0 {
		return occupant{empty: info.Mode()}, nil
	}
	m, err := manifest.Open(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return occupant{}, errors.New("holds files and no package; it is left alone")
	case err != nil:
		return occupant{}, fmt.Errorf("holds no package that this program reads and is left alone: %w", err)
	}
	if m.Digest == sum {
		err = m.VerifyFiles(ctx, target)
		if err == nil {
			return occupant{same: true}, nil
		}
		if !errors.Is(err, tensor.ErrCorrupt) {
			return occupant{}, err
		}
		err = fmt.Errorf("holds this package and it is damaged; set replace to write it again: %w", err)
	} else {
		err = fmt.Errorf("holds another package, %s; set replace to replace it", m.Digest)
	}
	if !d.Replace {
		return occupant{}, err
	}
	if err := onlyListed(m, target); err != nil {
		return occupant{}, err
	}
	return occupant{old: m}, nil
}

// onlyListed refuses a package whose removal would remove more than was published.
func onlyListed(m *manifest.Manifest, dir string) error {
	extra, err := m.Extra(dir)
	if err != nil {
		return err
	}
	if len(extra) > 0 {
		return fmt.Errorf("holds a package and %d more files or directories, %q first; move them away before it is replaced", len(extra), extra[0])
	}
	return nil
}

// swap puts tmp in the target's place. From here on the context is not asked: it is a matter of a few
// renames, and stopping between them helps nobody.
func (d Dir) swap(ctx context.Context, tmp, target string, was occupant) (err error) {
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()

	old := target + oldMark + suffix()
	switch {
	case was.old != nil:
		if err := d.do("move aside", func() error { return os.Rename(target, old) }); err != nil {
			return err
		}
		undo = append(undo, func() error { return os.Rename(old, target) })
		// Somebody may have put a file there during the copy, which takes minutes.
		if err := onlyListed(was.old, old); err != nil {
			return err
		}
	case was.empty != 0:
		if err := d.do("remove empty", func() error { return os.Remove(target) }); err != nil {
			return err
		}
		undo = append(undo, func() error { return os.Mkdir(target, was.empty.Perm()) })
	}
	if err := d.do("move in", func() error { return os.Rename(tmp, target) }); err != nil {
		return err
	}
	undo = append(undo, func() error { return os.Rename(target, tmp) })
	if err := d.do("sync parent", func() error { return syncDir(filepath.Dir(target)) }); err != nil {
		return err
	}
	if was.old != nil {
		if err := d.discard(old, target); err != nil {
			zerolog.Ctx(ctx).Warn().Err(err).Msg("the replaced package could not be removed; the next publish tries again")
		}
	}
	return nil
}

// do runs one action on the disk.
func (d Dir) do(action string, run func() error) error {
	if d.step != nil {
		if err := d.step(action); err != nil {
			return err
		}
	}
	return run()
}
