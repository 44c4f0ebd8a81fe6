package transfer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// copyBuffer is the size of one read, in bytes.
const copyBuffer = 256 << 10

// Fetch completes the file at path, which an earlier Fetch of the same blob may have begun, and compares it with
// the blob's digest; after nil it has the content and is on disk. The caller keeps other processes away from path
// and gives the file its name afterwards. After an error the file holds what a later Fetch can continue. Content of
// another size or digest is tensor.ErrCorrupt.
func Fetch(ctx context.Context, path string, b Blob, open Range, o Options) error {
	return Retry(ctx, "download", o, func(ctx context.Context, touch func()) (bool, error) {
		return fetch(ctx, path, b, open, o, touch)
	})
}

// fetch is one try. Progress says whether new bytes came.
func fetch(ctx context.Context, path string, b Blob, open Range, o Options, touch func()) (progress bool, err error) {
	p, err := openPartial(ctx, path, b, touch)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	start := p.have
	if start < b.Size {
		body, err := open(ctx, start, b.Size-start)
		if err != nil {
			return false, err
		}
		defer body.Close()
		err = p.fill(Watch(body, touch), func() {
			if o.Progress != nil {
				o.Progress(p.have)
			}
		})
		if err != nil {
			return p.have > start, err
		}
	}
	if sum := hex.EncodeToString(p.hash.Sum(nil)); sum != b.Digest() {
		err := fmt.Errorf("digest is %s, not %s: %w", sum, b.Digest(), tensor.ErrCorrupt)
		if start > 0 {
			// The part on disk was not ours or not whole; from byte 0 it may be right.
			err = &Retryable{Err: err}
		}
		return false, errors.Join(err, p.discard())
	}
	return true, p.Sync()
}

// partial is a file that is not complete, together with the digest of its first have bytes.
type partial struct {
	*os.File
	want Blob
	have int64
	hash hash.Hash
}

// openPartial reads what is there again, because the digest must cover it.
func openPartial(ctx context.Context, path string, b Blob, touch func()) (*partial, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	p := &partial{File: file, want: b, hash: b.hash()}
	st, err := file.Stat()
	if err == nil && st.Size() > b.Size {
		err = p.discard()
	}
	if err == nil {
		p.have, err = io.Copy(p.hash, Watch(Cancellable(ctx, file), touch))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return p, nil
}

// discard forgets what is there.
func (p *partial) discard() error {
	p.have, p.hash = 0, p.want.hash()
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
			return errors.Join(fmt.Errorf("more than the %d bytes that are listed arrive: %w", p.want.Size, tensor.ErrCorrupt), p.discard())
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
			return &Retryable{Err: fmt.Errorf("after %d of %d bytes: %w", p.have, p.want.Size, Redact(err))}
		}
	}
}

// Cancellable is r until ctx ends.
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
