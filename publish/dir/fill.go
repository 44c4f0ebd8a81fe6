package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// fill makes dir a complete, durable copy of the package: content, then its manifest.
func (d Place) fill(ctx context.Context, dir string, p place.Package, content []place.Cargo) (err error) {
	extra, err := p.Manifest.Extra(p.Dir)
	if err != nil {
		return err
	}
	if len(extra) > 0 {
		return fmt.Errorf("%q is not in the manifest of the package: %w", extra[0], tensor.ErrCorrupt)
	}
	if err := d.do("make directory", func() error { return os.Mkdir(dir, 0o755) }); err != nil {
		return err
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	dirs := []string{dir}
	for _, f := range content {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		made, err := makeParents(filepath.Dir(path))
		dirs = append(dirs, made...)
		if err != nil {
			return err
		}
		out, err := d.copyFile(ctx, f, path)
		if out != nil {
			files = append(files, out)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", f.Name, err)
		}
	}
	if err := d.do("sync files", func() error { return syncFiles(files) }); err != nil {
		return err
	}
	for _, made := range slices.Backward(dirs) {
		if err := d.do("sync directory", func() error { return disk.SyncDir(made) }); err != nil {
			return err
		}
	}
	return nil
}

// syncFiles makes files durable, all at once, so that the file system can combine its work.
func syncFiles(files []*os.File) error {
	var g errgroup.Group
	for _, f := range files {
		g.Go(f.Sync)
	}
	return g.Wait()
}

// copyFile returns the new file, open and not yet durable; also with an error after the file has been created.
func (d Place) copyFile(ctx context.Context, f place.Cargo, path string) (*os.File, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	// One byte more than listed proves that the file grew; the rest need not be written.
	out, got, err := d.writeFile(ctx, path, io.NewSectionReader(r, 0, f.Size+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return out, err
	}
	return out, f.Match(got)
}

// copyDurable is copyFile, and makes the file durable and closes it.
func (d Place) copyDurable(ctx context.Context, f place.Cargo, path string) error {
	out, err := d.copyFile(ctx, f, path)
	if out != nil {
		if err == nil {
			err = d.do("sync "+filepath.Base(path), out.Sync)
		}
		err = errors.Join(err, out.Close())
	}
	return err
}

// writeFile copies r to a new file and describes the written bytes. The file stays open, also with an error.
func (d Place) writeFile(ctx context.Context, path string, r io.Reader) (*os.File, manifest.File, error) {
	name := filepath.Base(path)
	var f *os.File
	err := d.do("create "+name, func() (err error) {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		return err
	})
	if err != nil {
		return nil, manifest.File{}, err
	}
	// The digest of the written bytes is computed on a thread of its own.
	written, write := io.Pipe()
	w, finished := disk.NewWriter(f, 0), make(chan struct{})
	go func() {
		defer close(finished)
		_, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(writerFunc(func(b []byte) (n int, err error) {
			err = d.do("write "+name, func() (err error) {
				n, err = w.Write(b)
				return err
			})
			return n, err
		}), write)}, struct{ io.Reader }{r}, make([]byte, 1<<20))
		write.CloseWithError(err)
	}()
	got, err := manifest.Hash(ctx, written)
	written.CloseWithError(err)
	<-finished
	return f, got, err
}

type writerFunc func(b []byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

// makeParents is os.MkdirAll, and returns the directories that it made, outermost first, also with an error.
func makeParents(dir string) ([]string, error) {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, os.ErrNotExist) || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, d)
	}
	var made []string
	for _, d := range slices.Backward(missing) {
		err := os.Mkdir(d, 0o755)
		if err == nil {
			made = append(made, d)
		} else if !errors.Is(err, os.ErrExist) {
			return made, err
		}
	}
	return made, nil
}

// removeEmpty removes the directories that makeParents made, as far as they are empty.
func removeEmpty(dirs []string) {
	for _, d := range slices.Backward(dirs) {
		if os.Remove(d) != nil {
			return
		}
	}
}

// Apart rejects two directories if one is inside the other: replacing the outer one would remove the inner one, and the
// inner one would become part of the outer one.
func Apart(a, b string) error {
	absA, err := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	if err := errors.Join(err, errB); err != nil {
		return err
	}
	realA, realB := disk.Resolve(absA), disk.Resolve(absB)
	if disk.Inside(realA, realB) || disk.Inside(realB, realA) {
		return fmt.Errorf("one of %s and %s is inside the other", a, b)
	}
	return nil
}
