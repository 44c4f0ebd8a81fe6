package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	// bundleSuffix follows the name of a package's directory in that of its bundle. A bundle cannot lie in the package,
	// whose manifest lists every file.
	bundleSuffix = ".sigstore.json"
	// maxBundle bounds a bundle in bytes: a statement with its recipe, in base64, and some certificates.
	maxBundle = 32 << 20
)

// parseBundle reads a bundle as a stranger may have written it. What is none is tensor.ErrCorrupt. That it has the right
// form says nothing of its signature.
func parseBundle(data []byte) (*bundle.Bundle, error) {
	if len(data) > maxBundle {
		return nil, fmt.Errorf("a bundle of more than %d bytes: %w", maxBundle, tensor.ErrCorrupt)
	}
	b := new(bundle.Bundle)
	if err := b.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("not a sigstore bundle: %w: %w", err, tensor.ErrCorrupt)
	}
	if b.GetDsseEnvelope() == nil {
		return nil, fmt.Errorf("the bundle holds no statement, but the signature of a file: %w", tensor.ErrCorrupt)
	}
	return b, nil
}

func readBundle(path string) (*bundle.Bundle, error) {
	data, err := readBounded(path, maxBundle)
	if err != nil {
		return nil, err
	}
	b, err := parseBundle(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// marshalBundle writes a bundle on one line. The encoder of protobuf puts spaces where it likes.
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

// bundlePath is the one that was asked for, or the default one beside the package.
func bundlePath(asked, dir string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return abs + bundleSuffix, nil
}

// outside refuses a path in the package: a file there would make the package one that its manifest does not describe.
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
		return usagef("--out %s lies in the package, whose files are all listed in its manifest", path)
	}
	return nil
}

// replace writes a file in one step: whoever reads it finds the old one or the new one.
func replace(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".llmexport-sign-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
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
