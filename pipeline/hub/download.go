package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// copyBuffer is the size of one read, in bytes.
const copyBuffer = 256 << 10

// download brings one blob into the cache. A lock, the one that huggingface_hub takes too, keeps two
// processes from writing the same .incomplete file.
func (c *client) download(ctx context.Context, ca *cache, commit string, f remote) error {
	blob := ca.blob(f.Blob)
	for _, path := range []string{blob, ca.lock(f.Blob)} {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
	}
	lock := flock.New(ca.lock(f.Blob))
	if _, err := lock.TryLockContext(ctx, 200*time.Millisecond); err != nil {
		return fmt.Errorf("waiting for another process: %w", err)
	}
	defer lock.Unlock()
	if isFile(blob, f.Size) {
		return nil
	}
	zerolog.Ctx(ctx).Info().Str("file", f.Name).Int64("bytes", f.Size).Msg("downloading")
	elem := []string{c.repo, "resolve", commit}
	for part := range strings.SplitSeq(f.Name, "/") {
		elem = append(elem, url.PathEscape(part))
	}
	u := c.url(elem...)
	err := c.retry(ctx, f.Name, func(ctx context.Context, touch func()) (bool, error) {
		return c.transfer(ctx, u, blob+".incomplete", f, touch)
	})
	if err != nil {
		return err
	}
	return os.Rename(blob+".incomplete", blob)
}

// transfer completes part and checks it; after nil it has the content of f and is on disk. Progress says
// whether new bytes came.
func (c *client) transfer(ctx context.Context, u *url.URL, part string, f remote, touch func()) (progress bool, err error) {
	p, err := openPartial(ctx, part, f, touch)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	start := p.have
	if start < f.Size {
		resp, err := c.get(ctx, u, start)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if err := c.accept(resp, p); err != nil {
			return false, err
		}
		start = p.have
		err = p.fill(&watched{resp.Body, touch}, func() { c.progress(f, p.have) })
		if err != nil {
			return p.have > start, err
		}
	}
	if sum := hex.EncodeToString(p.hash.Sum(nil)); sum != f.Blob {
		err := fmt.Errorf("digest is %s, the hub lists %s: %w", sum, f.Blob, tensor.ErrCorrupt)
		if start > 0 {
			// The part on disk was not ours or not whole; from byte 0 it may be right.
			err = &retryable{err: err}
		}
		return false, errors.Join(err, p.discard())
	}
	return true, p.Sync()
}

// accept checks that the answer continues p, or starts p over where the server ignores ranges.
func (c *client) accept(resp *http.Response, p *partial) error {
	switch resp.StatusCode {
	case http.StatusOK:
		if err := p.discard(); err != nil {
			return err
		}
	case http.StatusPartialContent:
		want := fmt.Sprintf("bytes %d-%d/%d", p.have, p.want.Size-1, p.want.Size)
		if got := resp.Header.Get("Content-Range"); p.have == 0 || got != want {
			err := fmt.Errorf("the hub sends the range %.100q, not %q: %w", got, want, tensor.ErrCorrupt)
			return errors.Join(&retryable{err: err}, p.discard()) // the next try asks for all of it
		}
	case http.StatusRequestedRangeNotSatisfiable:
		err := fmt.Errorf("the hub has no byte %d of the %d it lists: %w", p.have, p.want.Size, tensor.ErrCorrupt)
		return errors.Join(&retryable{err: err}, p.discard())
	default:
		return c.statusError(resp)
	}
	if n := resp.ContentLength; n >= 0 && p.have+n != p.want.Size {
		return errors.Join(fmt.Errorf("the hub sends %d bytes and lists %d: %w", p.have+n, p.want.Size, tensor.ErrCorrupt), p.discard())
	}
	return nil
}

func (c *client) progress(f remote, done int64) {
	if c.o.Progress != nil {
		c.report.Lock()
		defer c.report.Unlock()
		c.o.Progress(f.Name, done, f.Size)
	}
}

// partial is an .incomplete file together with the digest of its first have bytes.
type partial struct {
	*os.File
	want remote
	have int64
	hash hash.Hash
}

// openPartial reads what is there again, because the digest must cover it.
func openPartial(ctx context.Context, path string, f remote, touch func()) (*partial, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	p := &partial{File: file, want: f}
	p.restart()
	st, err := file.Stat()
	if err == nil && st.Size() > f.Size {
		err = p.discard()
	}
	if err == nil {
		p.have, err = io.Copy(p.hash, &watched{&cancellable{ctx, file}, touch})
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return p, nil
}

// restart begins the digest: SHA-256, or for what is no LFS file git's SHA-1 of a header and the content.
func (p *partial) restart() {
	p.have = 0
	if p.want.SHA256 != "" {
		p.hash = sha256.New()
		return
	}
	p.hash = sha1.New()
	fmt.Fprintf(p.hash, "blob %d\x00", p.want.Size)
}

// discard forgets what is there.
func (p *partial) discard() error {
	p.restart()
	if err := p.Truncate(0); err != nil {
		return err
	}
	_, err := p.Seek(0, io.SeekStart)
	return err
}

// fill appends r, which must end where the file does. Errors of r are retryable, those of the disk are not.
func (p *partial) fill(r io.Reader, report func()) error {
	buf := make([]byte, copyBuffer)
	report()
	for {
		n, err := r.Read(buf)
		if p.have+int64(n) > p.want.Size {
			return errors.Join(fmt.Errorf("the hub sends more than the %d bytes it lists: %w", p.want.Size, tensor.ErrCorrupt), p.discard())
		}
		if _, err := p.Write(buf[:n]); err != nil {
			return err
		}
		p.hash.Write(buf[:n])
		p.have += int64(n)
		if n > 0 {
			report()
		}
		if err == io.EOF && p.have < p.want.Size {
			err = io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &retryable{err: fmt.Errorf("after %d of %d bytes: %w", p.have, p.want.Size, redact(err))}
		}
	}
}

// cancellable ends with the context.
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
