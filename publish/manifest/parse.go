package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// MaxSize bounds a manifest in bytes. A mixture of experts with 60,000 tensors needs about 20 MB.
const MaxSize = 32 << 20

// maxRecipe bounds the recipe in a manifest, the only content of free form.
const maxRecipe = 1 << 20

// Parse reads a manifest and checks everything that does not need the files: version, fields, names,
// order, sizes, digests and its own digest. A version other than 1 is tensor.ErrUnsupported. Any other
// fault, including a spelling other than the canonical one, is a [DamagedError].
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
		Version *int          `json:"manifest"`
		Digest  digest.Digest `json:"digest"`
	}
	if err := jsondoc.Decode(data, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	if head.Version == nil {
		return nil, corrupt("no field %q, so this is not a manifest", "manifest")
	}
	if *head.Version != Version {
		// Every version has its digest in this place. If the digest is wrong, the number may have been changed.
		if open := bytes.Replace(data, []byte(digestField+head.Digest), []byte(digestField), 1); digest.Of(open) != head.Digest {
			return nil, corrupt("manifest has version %d, and its digest does not match", *head.Version)
		}
		return nil, fmt.Errorf("manifest version %d, this program reads %d: %w", *head.Version, Version, tensor.ErrUnsupported)
	}
	if _, err := digest.Parse(string(head.Digest)); err != nil {
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
		return nil, fmt.Errorf("manifest has digest %s, but its digest field is %s: %w", sum, m.Digest, tensor.ErrCorrupt)
	}
	// The decoder of encoding/json accepts duplicate names, names in a different case, and text after the
	// value. This comparison rejects all of that.
	if !bytes.Equal(data, want) {
		return nil, errForm
	}
	return m, nil
}

// Open reads the manifest of the package in dir, and none of the other files. The error is
// fs.ErrNotExist if there is no manifest.
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

// ReadOwn reads a file of the package in dir that no manifest lists ([FileName] or [SignatureName]). It must be a regular file
// of at most limit bytes; anything else is a [DamagedError].
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
