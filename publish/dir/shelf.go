package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// shelf is a directory of packages. Its channels are a file in it, which is replaced by a rename while a lock is held:
//
//	channels.json
//	.channels.json.llmexport-lock    held by the process that moves a channel, then removed
//	.channels.json.tmp-<16 digits>   the next one, not yet renamed
type shelf struct{ dir string }

// Shelf returns the directory that the package is in.
func (d Place) Shelf() (place.Shelf, string, error) {
	target, err := d.target()
	if err != nil {
		return nil, "", err
	}
	return shelf{filepath.Dir(target)}, filepath.Base(target), nil
}

// OpenShelf returns the directory at path as a shelf.
func OpenShelf(path string, _ place.OpenOptions) (place.Shelf, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(abs)
	}
	return shelf{abs}, err
}

func (s shelf) String() string { return s.dir }

// index reads the channels; it is nil if there are none.
func (s shelf) index() (channel.Index, error) {
	b, err := disk.ReadFile(filepath.Join(s.dir, channel.FileName), channel.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return channel.Parse(b)
}

func (s shelf) Channels(context.Context) ([]string, error) {
	x, err := s.index()
	return slices.Sorted(maps.Keys(x)), err
}

func (s shelf) History(_ context.Context, name string) (channel.History, error) {
	x, err := s.index()
	return x[name], err
}

func (s shelf) Ready(context.Context, string) error {
	if _, err := s.index(); err != nil {
		return err
	}
	return disk.CheckWritable(s.dir)
}

func (s shelf) Update(ctx context.Context, name string, change func(channel.History) (channel.History, error)) error {
	path := filepath.Join(s.dir, channel.FileName)
	unlock, err := disk.Lock(ctx, lockFile(path), "waiting for another publisher")
	if err != nil {
		return err
	}
	defer unlock()
	if err := removeLeft(s.dir); err != nil {
		return err
	}
	x, err := s.index()
	if err != nil {
		return err
	}
	was := x[name]
	now, err := change(was)
	if err != nil || now.Equal(was) {
		return err
	}
	if x == nil {
		x = channel.Index{}
	}
	x[name] = now
	b, err := x.Marshal()
	if err != nil {
		return err
	}
	tmp := filepath.Join(s.dir, "."+channel.FileName+tmpMark+suffix())
	err = Place{}.copyDurable(ctx, place.Loaded(channel.FileName, b), tmp)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return disk.SyncDir(s.dir)
}

// removeLeft removes what killed runs have left. The lock is held.
func removeLeft(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && marked(e.Name(), "."+channel.FileName, tmpMark) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s shelf) At(r place.Receipt) string { return filepath.Base(r.Ref) }

func (s shelf) Open(ctx context.Context, p channel.Package, o place.OpenOptions) (place.Origin, error) {
	if !filepath.IsLocal(p.At) || filepath.Base(p.At) != p.At {
		return nil, fmt.Errorf("%.80q is not a directory in %s: %w", p.At, s.dir, tensor.ErrCorrupt)
	}
	return Open(ctx, filepath.Join(s.dir, p.At), o)
}
