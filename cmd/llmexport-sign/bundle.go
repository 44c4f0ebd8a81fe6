package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxBundle bounds a bundle in bytes: a statement with its recipe, in base64, and some certificates. In a package it is
// at most manifest.MaxSignature.
const maxBundle = 32 << 20

// parseBundle parses an untrusted bundle. A malformed one is tensor.ErrCorrupt. Its signature is not checked.
func parseBundle(data []byte) (*bundle.Bundle, error) {
	if len(data) > maxBundle {
		return nil, fmt.Errorf("a bundle of more than %d bytes: %w", maxBundle, tensor.ErrCorrupt)
	}
	b := new(bundle.Bundle)
	if err := b.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("not a sigstore bundle: %w: %w", err, tensor.ErrCorrupt)
	}
	return b, nil
}

// readBundle reads the bundle of a package at path, or the one in the package if path is empty.
func readBundle(path, dir string) (*bundle.Bundle, error) {
	var data []byte
	var err error
	if path != "" {
		data, err = readBounded(path, maxBundle)
	} else {
		path = filepath.Join(dir, manifest.SignatureName)
		if data, err = manifest.ReadSignature(dir); err == nil && data == nil {
			err = fmt.Errorf("%s: the package is not signed: %w", path, fs.ErrNotExist)
		}
	}
	if err != nil {
		return nil, err
	}
	b, err := parseBundle(data)
	if err == nil && b.GetDsseEnvelope() == nil {
		err = fmt.Errorf("the bundle contains the signature of a file, not a statement: %w", tensor.ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// marshalBundle encodes a bundle on one line. The encoder of protobuf inserts random spaces, so it is encoded again.
func marshalBundle(m proto.Message) ([]byte, error) {
	loose, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, loose); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// place is the destination of a bundle.
type place struct {
	path, tmp string
	limit     int // bytes
}

// placeOf returns the destination that was asked for, or the default one in the package. Temporary files are never in
// the package, where a killed run would leave a file that is not in the manifest; the next run removes them.
func placeOf(asked, dir string) (place, error) {
	if asked != "" {
		return place{asked, asked + ".tmp", maxBundle}, outside(asked, dir)
	}
	abs, err := filepath.Abs(dir)
	return place{filepath.Join(abs, manifest.SignatureName), abs + ".sigstore.tmp", manifest.MaxSignature}, err
}

// holds returns an error if a bundle of n bytes is too long.
func (p place) holds(n int) error {
	if n <= p.limit {
		return nil
	}
	return fmt.Errorf("%s: the bundle has %d bytes, the limit is %d; --out FILE takes longer ones: %w", p.path, n, p.limit, tensor.ErrUnsupported)
}

// write replaces the file atomically: readers get either the old bundle or the new one.
func (p place) write(data []byte) error {
	if err := p.stage(data); err != nil {
		return err
	}
	if err := os.Rename(p.tmp, p.path); err != nil {
		return errors.Join(err, os.Remove(p.tmp))
	}
	return nil
}

// stage writes the temporary file, which is renamed next. On error, it leaves none.
func (p place) stage(data []byte) error {
	if err := os.Remove(p.tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(p.tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(p.tmp))
	}
	return nil
}

// outside rejects a path in the package: a file of any other name would not be in the manifest.
func outside(path, dir string) error {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return err
	}
	if parent, err = filepath.Abs(parent); err != nil {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	rel, err := filepath.Rel(dir, parent)
	if err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return exit.Usagef("--out %s lies in the package; without --out the bundle is its %s", path, manifest.SignatureName)
	}
	return nil
}

// readBounded reads a regular file.
func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path) // before opening, because opening a pipe waits for its writer
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: more than %d bytes: %w", path, limit, tensor.ErrUnsupported)
	}
	return data, nil
}
