package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// SignatureName is the name of the signature in a package: a sigstore bundle whose statement is about
// manifest.json and all files that it lists. No manifest lists the signature, and it is optional. llmexport-sign verifies it.
const SignatureName = "manifest.sigstore.json"

// MaxSignature bounds a signature, in bytes.
const MaxSignature = 1 << 20

// ReadSignature reads the signature of the package in dir; it returns nil and no error if there is none. A signature that is
// not a regular file of at most MaxSignature bytes is tensor.ErrCorrupt.
func ReadSignature(dir string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(SignatureName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !plainSignature(info):
		return nil, errSignature()
	}
	f, err := root.Open(SignatureName)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSignature+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", SignatureName, err)
	}
	if len(data) > MaxSignature {
		return nil, errSignature()
	}
	return data, nil
}

// plainSignature reports whether a file of the right name may be a signature.
func plainSignature(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() <= MaxSignature
}

func errSignature() error {
	return damagedf("%s is not a regular file of at most %d bytes", SignatureName, MaxSignature)
}
