package publish

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// cargo is a file that is sent: one of a package's directory, or data that is in memory.
type cargo struct {
	manifest.File
	root *os.Root
	data []byte
}

// onDisk is cargo of a file below root.
func onDisk(root *os.Root, f manifest.File) cargo { return cargo{File: f, root: root} }

// inMemory reports whether the content is data.
func (c cargo) inMemory() bool { return c.root == nil }

// loaded is cargo of data.
func loaded(name string, data []byte) cargo {
	return cargo{File: manifest.File{Name: name, Size: int64(len(data)), SHA256: manifest.DigestOf(data).Hex()}, data: data}
}

// freight is what travels of a package: the files that the manifest lists, its signature if it has one, and
// manifest.json last. Close closes the directory that the files are read from.
type freight struct {
	*os.Root
	files []cargo
	sum   manifest.Digest
}

func freightOf(p Package) (*freight, error) {
	data, sum, err := p.Manifest.Seal()
	if err != nil {
		return nil, err
	}
	signature, err := manifest.ReadSignature(p.Dir)
	if err != nil {
		return nil, err
	}
	f := &freight{sum: sum}
	if f.Root, err = os.OpenRoot(p.Dir); err != nil {
		return nil, err
	}
	for _, file := range p.Manifest.Files {
		f.files = append(f.files, onDisk(f.Root, file))
	}
	f.files = append(f.files, loaded(manifest.FileName, data))
	if signature != nil {
		f.add(loaded(manifest.SignatureName, signature))
	}
	return f, nil
}

// add adds a file.
func (f *freight) add(c cargo) { f.files = slices.Insert(f.files, len(f.files)-1, c) }

// find gives a file by its name.
func (f *freight) find(name string) (cargo, bool) {
	i := slices.IndexFunc(f.files, func(c cargo) bool { return c.Name == name })
	if i < 0 {
		return cargo{}, false
	}
	return f.files[i], true
}

// signature is that of the package; nil if it has none.
func (f *freight) signature() []byte {
	c, _ := f.find(manifest.SignatureName)
	return c.data
}

// receipt is one for all of the files.
func (f *freight) receipt(store, ref string, s Status) Receipt {
	r := Receipt{Status: s, Store: store, Ref: ref, Digest: f.sum, Files: len(f.files)}
	for _, c := range f.files {
		r.Bytes += c.Size
	}
	return r
}

// content is a file that can be read at any offset.
type content interface {
	io.ReaderAt
	io.Closer
}

type closing struct{ *bytes.Reader }

func (closing) Close() error { return nil }

// open gives the content, of which only the size is right for sure.
func (c cargo) open() (content, error) {
	if c.inMemory() {
		return closing{bytes.NewReader(c.data)}, nil
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
