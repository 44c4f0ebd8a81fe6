package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// MaxSize bounds a manifest in bytes. A mixture of experts with 60,000 tensors needs about 20 MB.
const MaxSize = 32 << 20

// maxRecipe bounds the recipe inside a manifest, which is the only part of free form.
const maxRecipe = 1 << 20

// Parse reads a manifest and checks all that can be known without its files: version, fields, names,
// order, sizes, digests and its own digest. A version other than 1 is tensor.ErrUnsupported, everything
// else that is wrong, another spelling than the canonical one included, is a [DamagedError].
func Parse(data []byte) (*Manifest, error) {
	m, err := parse(data)
	return m, Damaged(err)
}

var errForm = corrupt("manifest is not in its canonical form")

func parse(data []byte) (*Manifest, error) {
	if len(data) > MaxSize {
		return nil, corrupt("manifest of more than %d bytes", MaxSize)
	}
	var head struct {
		Version *int   `json:"manifest"`
		Digest  Digest `json:"digest"`
	}
	if err := jsondoc.Decode(data, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	if head.Version == nil {
		return nil, corrupt("no field %q, so this is no manifest", "manifest")
	}
	if *head.Version != Version {
		// Every version has its digest in this place; without it the number may be a changed one.
		if open := bytes.Replace(data, []byte(digestField+head.Digest), []byte(digestField), 1); DigestOf(open) != head.Digest {
			return nil, corrupt("manifest has version %d and not the digest that it says", *head.Version)
		}
		return nil, fmt.Errorf("manifest version %d, this program reads %d: %w", *head.Version, Version, tensor.ErrUnsupported)
	}
	if _, err := ParseDigest(string(head.Digest)); err != nil {
		return nil, err
	}

	m := new(Manifest)
	if err := jsondoc.DecodeStrict(data, m); err != nil {
		return nil, fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	want, sum, err := m.seal(len(data))
	switch {
	case errors.Is(err, errLong):
		return nil, errForm
	case err != nil:
		return nil, err
	}
	if m.Digest != sum {
		return nil, fmt.Errorf("manifest has digest %s and says %s: %w", sum, m.Digest, tensor.ErrCorrupt)
	}
	// The decoder of encoding/json forgives much: repeated names, names in other case, text after the
	// value. None of that survives this comparison.
	if !bytes.Equal(data, want) {
		return nil, errForm
	}
	return m, nil
}

// Marshal returns the canonical bytes of the manifest with its digest. It fails, with
// tensor.ErrCorrupt, on a manifest that Parse would refuse. The receiver is not changed.
func (m *Manifest) Marshal() ([]byte, error) {
	data, _, err := m.Seal()
	return data, err
}

// Seal is Marshal that also returns the digest it wrote.
func (m *Manifest) Seal() ([]byte, Digest, error) { return m.seal(MaxSize) }

// digestField is what stands before the digest: only members of the outermost object follow a line end and one space, and no
// string holds one.
const digestField = "\n \"digest\": \""

// seal writes a manifest of at most limit bytes.
func (m *Manifest) seal(limit int) ([]byte, Digest, error) {
	if err := m.validate(); err != nil {
		return nil, "", err
	}
	c := *m
	c.Digest = ""
	open, err := canonical(&c, limit-len(digestPrefix)-hex.EncodedLen(sha256.Size))
	if err != nil {
		return nil, "", fmt.Errorf("manifest: %w: %w", err, tensor.ErrCorrupt)
	}
	sum := DigestOf(open)
	return bytes.Replace(open, []byte(digestField), []byte(digestField+sum), 1), sum, nil
}

// Open reads the manifest of the package in dir; it does not look at the other files. The error is
// fs.ErrNotExist when there is no manifest.
func Open(dir string) (*Manifest, error) {
	data, err := ReadOwn(dir, FileName, MaxSize)
	if err != nil {
		return nil, err
	}
	m, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, FileName), err)
	}
	return m, nil
}

// ReadOwn reads a file of the package in dir that no manifest lists, as [FileName] and [SignatureName] are: a regular file of
// at most limit bytes, or a [DamagedError].
func ReadOwn(dir, name string, limit int64) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, damagedf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(data)) > limit {
		err = damagedf("%s has more than %d bytes", path, limit)
	}
	return data, errors.Join(err, f.Close())
}
