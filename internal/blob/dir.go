package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
)

// Dir is a [Sweeper] in a directory, which may be on a network file system:
//
//	blobs/ab/abcdef...   content
//	texts/<name>
//	tmp/<random>         what is being written, or was when its writer ended
//
// A file is written under another name and renamed once it is on disk. No link leads out of the directory.
type Dir struct{ root *os.Root }

const (
	blobsDir = "blobs"
	textsDir = "texts"
	tmpDir   = "tmp"
)

// OpenDir makes path a store, and its parents if they are absent.
func OpenDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{root}
	for _, name := range []string{blobsDir, textsDir, tmpDir} {
		err = errors.Join(err, disk.MakeDirIn(root, name))
	}
	return d, err
}

// String implements Store.
func (d *Dir) String() string { return d.root.Name() }

func blobPath(sum string) (string, error) {
	if err := CheckSum(sum); err != nil {
		return "", err
	}
	return path.Join(blobsDir, sum[:2], sum), nil
}

func textPath(name string) (string, error) { return path.Join(textsDir, name), CheckName(name) }

// Range implements Store.
func (d *Dir) Range(b transfer.Blob) transfer.Range {
	return func(_ context.Context, off, n int64) (io.ReadCloser, error) {
		at, err := blobPath(b.SHA256)
		if err != nil {
			return nil, err
		}
		f, err := disk.OpenIn(d.root, filepath.FromSlash(at), os.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		st, err := f.Stat()
		if err == nil && st.Size() != b.Size {
			err = fmt.Errorf("%s has %d bytes instead of %d: %w", f.Name(), st.Size(), b.Size, fault.ErrCorrupt)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(f, off, n), f}, nil
	}
}

// Has implements Store.
func (d *Dir) Has(_ context.Context, b transfer.Blob) (bool, error) {
	at, err := blobPath(b.SHA256)
	if err != nil {
		return false, err
	}
	st, err := d.root.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && st.Mode().IsRegular() && st.Size() == b.Size, disk.Name(d.root, err)
}

// Put implements Store.
func (d *Dir) Put(ctx context.Context, b transfer.Blob, content io.ReaderAt) error {
	at, err := blobPath(b.SHA256)
	if err != nil {
		return err
	}
	return d.write(at, func(w io.Writer) error {
		n, sum, err := digest.Read(ctx, io.TeeReader(io.NewSectionReader(content, 0, b.Size), w))
		if err == nil && (n != b.Size || sum.Hex() != b.SHA256) {
			err = fmt.Errorf("%d bytes with SHA-256 %s instead of %d with %s: %w", n, sum.Hex(), b.Size, b.SHA256, fault.ErrCorrupt)
		}
		return err
	})
}

// Text implements Store.
func (d *Dir) Text(_ context.Context, name string, limit int64) ([]byte, error) {
	at, err := textPath(name)
	if err != nil {
		return nil, err
	}
	return disk.ReadIn(d.root, filepath.FromSlash(at), limit)
}

// SetText implements Store.
func (d *Dir) SetText(_ context.Context, name string, text []byte, _ []transfer.Blob) error {
	at, err := textPath(name)
	if err != nil {
		return err
	}
	return d.write(at, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// write replaces the file of a slash-separated path by what fill writes.
func (d *Dir) write(at string, fill func(w io.Writer) error) error {
	if err := disk.MakeDirIn(d.root, filepath.FromSlash(path.Dir(at))); err != nil {
		return err
	}
	tmp := path.Join(tmpDir, fmt.Sprintf("%016x", rand.Uint64()))
	f, err := d.root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return disk.Name(d.root, err)
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.root.Rename(tmp, at)
	}
	if err != nil {
		return errors.Join(disk.Name(d.root, err), disk.IgnoreAbsent(d.root.Remove(tmp)))
	}
	return disk.SyncDir(filepath.Join(d.root.Name(), filepath.FromSlash(path.Dir(at))))
}

// RemoveText implements Store.
func (d *Dir) RemoveText(_ context.Context, name string) error {
	at, err := textPath(name)
	if err != nil {
		return err
	}
	return disk.IgnoreAbsent(d.root.Remove(at))
}

// RemoveBlob implements Sweeper.
func (d *Dir) RemoveBlob(_ context.Context, sum string) error {
	at, err := blobPath(sum)
	if err != nil {
		return err
	}
	return disk.IgnoreAbsent(d.root.Remove(at))
}

// Texts implements Store.
func (d *Dir) Texts(ctx context.Context) ([]Info, error) {
	return d.list(ctx, textsDir, func(name string) bool { return CheckName(name) == nil })
}

// Blobs implements Sweeper.
func (d *Dir) Blobs(ctx context.Context) ([]Info, error) { return d.list(ctx, blobsDir, digest.IsHex) }

// Tidy implements Sweeper.
func (d *Dir) Tidy(ctx context.Context, before time.Time) error {
	left, err := d.list(ctx, tmpDir, func(string) bool { return true })
	for _, f := range left {
		if f.Time.Before(before) {
			err = errors.Join(err, disk.IgnoreAbsent(d.root.Remove(path.Join(tmpDir, f.Name))))
		}
	}
	return err
}

// list lists the files below a directory whose names are those of the store.
func (d *Dir) list(ctx context.Context, dir string, ours func(name string) bool) (list []Info, err error) {
	err = fs.WalkDir(d.root.FS(), dir, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || !e.Type().IsRegular() || !ours(e.Name()) {
			return disk.IgnoreAbsent(err)
		}
		st, err := e.Info()
		if err == nil {
			list = append(list, Info{e.Name(), st.Size(), st.ModTime()})
		}
		return disk.IgnoreAbsent(err)
	})
	return list, disk.Name(d.root, err)
}
