package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// MaxSize bounds a manifest in bytes. A mixture of experts with 60,000 tensors needs about 20 MB.
const MaxSize = 32 << 20

// maxRecipe bounds the recipe inside a manifest, which is the only part of free form.
const maxRecipe = 1 << 20

// Parse reads a manifest and checks all that can be known without its files: version, fields, names,
// order, sizes, digests and its own digest. A version other than 1 is tensor.ErrUnsupported, everything
// else that is wrong, another spelling than the canonical one included, is tensor.ErrCorrupt.
func Parse(data []byte) (*Manifest, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("manifest of more than %d bytes: %w", MaxSize, tensor.ErrCorrupt)
	}
	var head struct {
		Version *int `json:"manifest"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	if head.Version == nil {
		return nil, fmt.Errorf("no field %q, so this is no manifest: %w", "manifest", tensor.ErrCorrupt)
	}
	if *head.Version != Version {
		return nil, fmt.Errorf("manifest version %d, this program reads %d: %w", *head.Version, Version, tensor.ErrUnsupported)
	}

	m := new(Manifest)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	if _, err := ParseDigest(string(m.Digest)); err != nil {
		return nil, err
	}
	want, sum, err := m.Seal()
	if err != nil {
		return nil, err
	}
	if m.Digest != sum {
		return nil, fmt.Errorf("manifest has digest %s and says %s: %w", sum, m.Digest, tensor.ErrCorrupt)
	}
	// The decoder of encoding/json forgives much: repeated names, names in other case, text after the
	// value. None of that survives this comparison.
	if !bytes.Equal(data, want) {
		return nil, fmt.Errorf("manifest is not in its canonical form: %w", tensor.ErrCorrupt)
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
func (m *Manifest) Seal() ([]byte, Digest, error) {
	if err := m.validate(); err != nil {
		return nil, "", err
	}
	c := *m
	c.Digest = ""
	open, err := Canonical(&c)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	sum := DigestOf(open)
	// Only members of the outermost object follow a line end and one space, and no string holds one.
	field := "\n \"digest\": \""
	data := bytes.Replace(open, []byte(field), []byte(field+string(sum)), 1)
	if len(data) > MaxSize {
		return nil, "", fmt.Errorf("manifest of %d bytes, the limit is %d: %w", len(data), MaxSize, tensor.ErrCorrupt)
	}
	return data, sum, nil
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
// at most limit bytes, or tensor.ErrCorrupt.
func ReadOwn(dir, name string, limit int64) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file: %w", path, tensor.ErrCorrupt)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(data)) > limit {
		err = fmt.Errorf("%s: more than %d bytes: %w", path, limit, tensor.ErrCorrupt)
	}
	return data, errors.Join(err, f.Close())
}
