package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Dir publishes to a directory of this machine. The package is built beside it and renamed, so that the
// directory holds a whole package at every moment but one: between the two renames of a replacement it
// is absent, and a run killed there is repaired by the next Publish to the same place.
//
//	<path>.tmp-<16 hex digits>       being built or removed, never looked at
//	<path>.pull-<16 hex digits>      being pulled, see [Pull]
//	<path>.old-<16 hex digits>       the whole package that was replaced, until the other places have theirs
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
	diff, err := d.diff(ctx, p)
	if err != nil {
		return Diff{}, fmt.Errorf("%s: %w", d.Path, err)
	}
	return diff, nil
}

func (d Dir) diff(ctx context.Context, p Package) (Diff, error) {
	target, err := d.target()
	if err != nil {
		return Diff{}, err
	}
	data, sum, err := p.Manifest.Seal()
	if err != nil {
		return Diff{}, err
	}
	if err := apart(p.Dir, target); err != nil {
		return Diff{}, err
	}
	was, err := d.inspect(ctx, target, sum)
	if err != nil {
		return Diff{}, err
	}
	if was.same {
		return diffManifests(p.Manifest, p.Manifest), nil
	}
	diff := diffManifests(was.old, p.Manifest)
	if was.old != nil && was.old.Digest == sum {
		diff = Diff{Status: Replaced, Keep: []string{manifest.FileName}}
		for _, f := range p.Manifest.Files {
			got, err := manifest.HashFile(ctx, filepath.Join(target, filepath.FromSlash(f.Name)))
			switch {
			case ctx.Err() != nil:
				return Diff{}, ctx.Err()
			case errors.Is(err, fs.ErrNotExist):
				diff.Add = append(diff.Add, f.Name)
			case err != nil || f.Match(got) != nil:
				diff.Change = append(diff.Change, f.Name)
			default:
				diff.Keep = append(diff.Keep, f.Name)
			}
		}
		slices.Sort(diff.Keep)
	}
	diff.Upload = p.Manifest.Bytes() + int64(len(data)) // all files are written anew
	return diff, nil
}

// target is the directory's absolute path.
func (d Dir) target() (string, error) {
	if d.Path == "" {
		return "", errors.New("no directory is given")
	}
	target, err := filepath.Abs(d.Path)
	if err == nil && filepath.Dir(target) == target {
		err = errors.New("a file system's root holds no package")
	}
	return target, err
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

func (d Dir) stage(ctx context.Context, p Package) (_ *stagedDir, err error) {
	target, err := d.target()
	if err != nil {
		return nil, err
	}
	data, sum, err := p.Manifest.Seal()
	if err != nil {
		return nil, err
	}
	if err := apart(p.Dir, target); err != nil {
		return nil, err
	}
	tmp := target + tmpMark + suffix()
	s, err := d.begin(ctx, target, sum, beside{work: tmp, whole: tmp})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.receipt = Receipt{
		Status: s.was.status(), Store: "dir", Ref: d.Path, Digest: sum,
		Files: len(p.Manifest.Files) + 1, Bytes: p.Manifest.Bytes() + int64(len(data)),
	}
	if s.was.same {
		return s, nil
	}
	s.receipt.Uploaded = s.receipt.Bytes
	if err := checkSpace(filepath.Dir(target), s.receipt.Bytes); err != nil {
		return nil, err
	}
	return s, d.fill(ctx, tmp, p, data)
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
