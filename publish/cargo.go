package publish

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync/atomic"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// cargo is a file that is sent: one of a package's directory, or data that is in memory.
type cargo struct {
	manifest.File
	root *os.Root
	data []byte
}

// loaded is cargo of data.
func loaded(name string, data []byte) cargo {
	return cargo{File: manifest.File{Name: name, Size: int64(len(data)), SHA256: manifest.DigestOf(data).Hex()}, data: data}
}

// cargoOf is what a package consists of, manifest.json last. The caller closes root, which it is read from.
func cargoOf(p Package) (files []cargo, sum manifest.Digest, root *os.Root, err error) {
	data, sum, err := p.Manifest.Seal()
	if err != nil {
		return nil, "", nil, err
	}
	if root, err = os.OpenRoot(p.Dir); err != nil {
		return nil, "", nil, err
	}
	for _, f := range p.Manifest.Files {
		files = append(files, cargo{File: f, root: root})
	}
	return append(files, loaded(manifest.FileName, data)), sum, root, nil
}

// content is a file that can be read at any offset.
type content interface {
	io.ReaderAt
	io.Closer
}

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// open gives the content, of which only the size is right for sure.
func (c cargo) open() (content, error) {
	if c.root == nil {
		return inMemory{bytes.NewReader(c.data)}, nil
	}
	return c.OpenIn(c.root)
}

// read gives all of it, compared with its digest.
func (c cargo) read() ([]byte, error) {
	f, err := c.open()
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(newProof(c.File, f))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return b, nil
}

// head gives the first bytes.
func (c cargo) head(n int64) ([]byte, error) {
	f, err := c.open()
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, min(n, c.Size)))
	return b, errors.Join(err, f.Close())
}

// gitName gives git's name of the content, which it compares with its digest.
func (c cargo) gitName(ctx context.Context) (string, error) {
	f, err := c.open()
	if err != nil {
		return "", err
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", c.Size)
	_, err = io.Copy(h, transfer.Cancellable(ctx, newProof(c.File, f)))
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("%s: %w", c.Name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// proof reads content on its way out. The last bytes are given only if all of them together have the listed digest, so
// that no server ever gets the whole of something else.
type proof struct {
	want manifest.File
	r    io.Reader
	h    hash.Hash
	n    int64
	bad  atomic.Pointer[error] // what was wrong: not every transport hands on the errors of a body
}

func newProof(want manifest.File, r io.ReaderAt) *proof {
	return &proof{want: want, r: io.NewSectionReader(r, 0, want.Size), h: sha256.New()}
}

func (p *proof) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.h.Write(b[:n])
	p.n += int64(n)
	if p.n == p.want.Size || err != nil {
		got := manifest.File{Size: p.n, SHA256: hex.EncodeToString(p.h.Sum(nil))}
		bad := p.want.Match(got)
		if err != nil && err != io.EOF {
			bad = err
		}
		if bad != nil {
			p.bad.Store(&bad)
			return 0, bad
		}
	}
	return n, err
}

// err is what was wrong with the content, or nil.
func (p *proof) err() error {
	if p == nil { // nothing was read yet
		return nil
	}
	if bad := p.bad.Load(); bad != nil {
		return *bad
	}
	return nil
}

// errChanged is a file whose bytes were not the same at two readings.
func errChanged(name string) error {
	return fmt.Errorf("%s changed while it was sent: %w", name, tensor.ErrCorrupt)
}
