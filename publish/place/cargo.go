package place

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Cargo is a file to send: one in a package's directory, or data in memory.
type Cargo struct {
	manifest.File
	root *os.Root
	data []byte
}

// File returns the cargo for a file below root.
func File(root *os.Root, f manifest.File) Cargo { return Cargo{File: f, root: root} }

// InMemory reports whether the content is in memory.
func (c Cargo) InMemory() bool { return c.root == nil }

// Loaded returns cargo for data.
func Loaded(name string, data []byte) Cargo {
	return Cargo{File: manifest.File{Name: name, Size: int64(len(data)), SHA256: digest.Of(data).Hex()}, data: data}
}

// Freight is the files of a package to send: those that the manifest lists, its signature if it has one, and
// manifest.json last. Close closes the directory that the files are read from.
type Freight struct {
	*os.Root
	Files []Cargo
	Sum   digest.Digest // digest of the manifest
}

// FreightOf reads the signature of a package and opens its directory. The other files are read when they are sent.
func FreightOf(p Package) (*Freight, error) {
	data, sum, err := p.Manifest.Seal()
	if err != nil {
		return nil, err
	}
	signed := p.Dir
	if p.Signature != "" {
		signed = filepath.Dir(p.Signature)
	}
	signature, err := manifest.ReadSignature(signed)
	if err != nil {
		return nil, err
	}
	f := &Freight{Sum: sum}
	if f.Root, err = os.OpenRoot(p.Dir); err != nil {
		return nil, err
	}
	for _, file := range p.Manifest.Files {
		f.Files = append(f.Files, File(f.Root, file))
	}
	f.Files = append(f.Files, Loaded(manifest.FileName, data))
	if signature != nil {
		f.Add(Loaded(manifest.SignatureName, signature))
	}
	return f, nil
}

// Add adds a file.
func (f *Freight) Add(c Cargo) { f.Files = slices.Insert(f.Files, len(f.Files)-1, c) }

// Find returns the file called name.
func (f *Freight) Find(name string) (Cargo, bool) {
	i := slices.IndexFunc(f.Files, func(c Cargo) bool { return c.Name == name })
	if i < 0 {
		return Cargo{}, false
	}
	return f.Files[i], true
}

// Signature returns the signature of the package; nil if it has none.
func (f *Freight) Signature() []byte {
	c, _ := f.Find(manifest.SignatureName)
	return c.data
}

// Receipt returns the receipt for all of the files.
func (f *Freight) Receipt(store, ref string, s Status) Receipt {
	r := Receipt{Status: s, Store: store, Ref: ref, Digest: f.Sum, Files: len(f.Files)}
	for _, c := range f.Files {
		r.Bytes += c.Size
	}
	return r
}

// Content is a file that can be read at any offset.
type Content interface {
	io.ReaderAt
	io.Closer
}

type closing struct{ *bytes.Reader }

func (closing) Close() error { return nil }

// Open opens the content. Only its size has been checked.
func (c Cargo) Open() (Content, error) {
	if c.InMemory() {
		return closing{bytes.NewReader(c.data)}, nil
	}
	return c.OpenIn(c.root)
}

// ReadAll returns the content after comparing it with its digest.
func (c Cargo) ReadAll() ([]byte, error) {
	f, err := c.Open()
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(NewProof(c.File, f))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return b, nil
}

// Proof is a reader that checks content while it is sent. It returns the last bytes only if everything has the listed
// digest, so that no server ever receives the whole of a different file.
type Proof struct {
	want manifest.File
	r    io.Reader
	h    digest.Hash
	n    int64
	bad  atomic.Pointer[error] // the error of Read: not every transport returns the errors of a body
}

// NewProof returns a Proof for r, which must have the content that want describes.
func NewProof(want manifest.File, r io.ReaderAt) *Proof {
	return &Proof{want: want, r: io.NewSectionReader(r, 0, want.Size), h: digest.New()}
}

func (p *Proof) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.h.Write(b[:n])
	p.n += int64(n)
	if p.n == p.want.Size || err != nil {
		got := manifest.File{Size: p.n, SHA256: p.h.Hex()}
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

// Err returns the error of reading, or nil.
func (p *Proof) Err() error {
	if p == nil { // nothing has been read
		return nil
	}
	if bad := p.bad.Load(); bad != nil {
		return *bad
	}
	return nil
}

// Changed is the error for a file whose bytes changed between two readings.
func Changed(name string) error {
	return fmt.Errorf("%s changed while it was sent: %w", name, tensor.ErrCorrupt)
}
