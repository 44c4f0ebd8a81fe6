package transfer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
)

// wrongContent is an error that makes all data received so far worthless.
type wrongContent struct{ error }

func (w *wrongContent) Unwrap() error { return w.error }

// Fetch completes the file at path, which an earlier Fetch of the same blob may have begun, and compares it with the blob's
// digest; after nil it has the content and is on disk. The caller keeps other processes away from path and renames the file
// afterwards. After an error, the file and its journal hold any data that a later Fetch can continue. A file without a journal
// counts as the first bytes of the blob. Content of another size or digest is fault.ErrCorrupt, after a second try from the
// first byte.
func Fetch(ctx context.Context, path string, b Blob, open Range, o Options) error {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(FetchIn(ctx, dir, filepath.Base(path), b, open, o), dir.Close())
}

// FetchIn is [Fetch] for a file in a directory that others may write to: it follows no link out of dir, or in place of the file.
func FetchIn(ctx context.Context, dir *os.Root, name string, b Blob, open Range, o Options) error {
	p, err := openPartial(dir, name, b)
	if err != nil {
		return err
	}
	err = p.fill(ctx, open, o)
	if wrong := (*wrongContent)(nil); errors.As(err, &wrong) {
		zerolog.Ctx(ctx).Warn().Err(err).Msg("fetching all of it again")
		if err = p.restart(); err == nil {
			err = p.fill(ctx, open, o)
		}
	}
	wrong := (*wrongContent)(nil)
	switch {
	case err == nil:
		return errors.Join(p.finish(), p.close())
	case errors.As(err, &wrong) || p.have() == 0:
		return errors.Join(p.explain(err), p.remove())
	}
	return errors.Join(p.explain(err), p.close())
}

// fill downloads the missing bytes and compares the digest.
func (p *partial) fill(ctx context.Context, open Range, o Options) error {
	n := max(1, min(cmp.Or(o.Connections, 4), len(p.pieces)/2)) // a connection pays off from two pieces on
	d := newDownload(p, open, o)
	err := d.connect(ctx, n)
	if errors.Is(err, ErrNoRanges) {
		d = newDownload(p, open, o)
		d.sequential = true
		err = d.connect(ctx, 1)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return d.compare()
}

// connect runs n connections until everything is downloaded and hashed.
func (d *download) connect(ctx context.Context, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stopped = true
		d.changed.Broadcast()
	})
	d.n, d.active = n, 1
	g.Go(d.digest)
	for i := range n {
		g.Go(func() error { return d.connection(ctx, i == 0) })
	}
	return g.Wait()
}

// Cancellable returns a reader of r that fails when ctx ends.
func Cancellable(ctx context.Context, r io.Reader) io.Reader { return &cancellable{ctx, r} }

type cancellable struct {
	ctx context.Context
	io.Reader
}

func (c *cancellable) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.Reader.Read(p)
}
