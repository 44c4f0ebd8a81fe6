// Package dir publishes packages to directories of this machine, and pulls packages from elsewhere to one: see [Place]
// and [Pull].
package dir

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// Place publishes to a directory of this machine. The package is built next to it and renamed, so that the directory
// always contains a whole package, except between the two renames of a replacement, when it is absent; after a kill at
// that moment, the next Stage in the same place repairs it.
//
//	<path>.tmp-<16 hex digits>       being built or removed, never read
//	<path>.pull-<16 hex digits>      being pulled, see [Pull]
//	<path>.old-<16 hex digits>       the replaced package, until the other places are done
//	.<name>.llmexport-lock           held by the publishing process, then removed
//
// Files are copied and never hard-linked: users edit config.json in place, and a link would carry the edit into the
// files that the next run starts from.
type Place struct {
	// Path is the directory. Its parent is created.
	Path string
	// Replace allows replacing an existing package, but nothing else: no file, link, directory without a manifest, or
	// package with files that its manifest does not list.
	Replace bool

	// step is called before every disk operation; tests let it fail, cancel or exit.
	step func(action string) error
}

// String names the directory.
func (d Place) String() string { return "dir " + d.Path }

// Public returns false: who can read the directory is unknown.
func (d Place) Public() bool { return false }

// Ready implements place.Store.
func (d Place) Ready(ctx context.Context, could func(*manifest.Manifest) bool) error {
	target, err := d.target()
	if err != nil {
		return err
	}
	if m, err := manifest.Open(target); err != nil || !could(m) {
		if _, err := d.inspect(ctx, target, "", nil); err != nil {
			return err
		}
	}
	return disk.CheckWritable(filepath.Dir(target))
}

// Diff compares the directory with the package.
func (d Place) Diff(ctx context.Context, p place.Package) (place.Diff, error) {
	target, err := d.target()
	if err != nil {
		return place.Diff{}, err
	}
	f, err := place.FreightOf(p)
	if err != nil {
		return place.Diff{}, err
	}
	defer f.Close()
	if err := Apart(p.Dir, target); err != nil {
		return place.Diff{}, err
	}
	was, err := d.inspect(ctx, target, f.Sum, f.Signature())
	if err != nil {
		return place.Diff{}, err
	}
	had := map[string]string{}
	if was.old != nil {
		for _, listed := range was.old.Files {
			had[listed.Name] = listed.SHA256
		}
		had[manifest.FileName] = "another"
	}
	if was.signature != nil {
		had[manifest.SignatureName] = digest.Of(was.signature).Hex()
	}
	if was.old != nil && was.old.Digest == f.Sum {
		m, _ := f.Find(manifest.FileName)
		had[m.Name] = m.SHA256
	}
	if was.old != nil && was.old.Digest == f.Sum && !was.same {
		for name := range had {
			got, err := manifest.HashFile(ctx, filepath.Join(target, filepath.FromSlash(name)))
			switch {
			case ctx.Err() != nil:
				return place.Diff{}, ctx.Err()
			case errors.Is(err, fs.ErrNotExist):
				delete(had, name)
			default:
				had[name] = got.SHA256 // absent for anything but a regular file
			}
		}
	}
	diff := place.Compare(had, f.Files)
	diff.Status = was.status()
	if !was.same {
		diff.Upload = f.Receipt("dir", "", "").Bytes // all files are rewritten
	}
	return diff, nil
}

// target returns the absolute path of the directory.
func (d Place) target() (string, error) {
	if d.Path == "" {
		return "", errors.New("no directory is given")
	}
	target, err := filepath.Abs(d.Path)
	if err == nil && filepath.Dir(target) == target {
		err = errors.New("the root of a file system cannot be a package")
	}
	return target, err
}

// Stage builds the package next to the directory. Two publishers of one directory take turns. An empty directory is
// used; for other contents see [Place.Replace].
func (d Place) Stage(ctx context.Context, p place.Package) (_ place.Staged, err error) {
	target, err := d.target()
	if err != nil {
		return nil, err
	}
	f, err := place.FreightOf(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := Apart(p.Dir, target); err != nil {
		return nil, err
	}
	tmp := target + tmpMark + suffix()
	s, err := d.begin(ctx, target, f.Sum, f.Signature(), workplace{work: tmp, whole: tmp})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.receipt = f.Receipt("dir", d.Path, s.was.status())
	if s.was.same {
		s.receipt.Uploaded = int64(len(s.was.sign))
		return s, nil
	}
	if kept := s.was.kept(f.Sum); kept != nil && f.Signature() == nil {
		f.Add(place.Loaded(manifest.SignatureName, kept))
	}
	s.receipt.Uploaded = s.receipt.Bytes
	if err := checkSpace(filepath.Dir(target), s.receipt.Bytes); err != nil {
		return nil, err
	}
	return s, d.fill(ctx, tmp, p, f.Files)
}

// do runs one disk operation.
func (d Place) do(action string, run func() error) error {
	if d.step != nil {
		if err := d.step(action); err != nil {
			return err
		}
	}
	return run()
}
