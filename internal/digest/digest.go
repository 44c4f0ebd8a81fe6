// Package digest names bytes by their SHA-256.
package digest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/llmexport/llmexport/internal/fault"
)

// Digest is "sha256:" and 64 lower-case hexadecimal digits.
type Digest string

const prefix = "sha256:"

// Size is the length of a Digest in bytes.
const Size = len(prefix) + 2*sha256.Size

// Parse checks the form of a digest. Other forms are ErrCorrupt; a digest that passed may be used in a file name.
func Parse(s string) (Digest, error) {
	if h, ok := strings.CutPrefix(s, prefix); !ok || !IsHex(h) {
		return "", fmt.Errorf("digest %.80q is not sha256: and 64 lower-case hex digits: %w", s, fault.ErrCorrupt)
	}
	return Digest(s), nil
}

// IsHex reports whether s is 64 lower-case hexadecimal digits.
func IsHex(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

// Hex is the digest without its prefix.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), prefix) }

// Of is the digest of data.
func Of(data []byte) Digest {
	h := New()
	h.Write(data)
	return h.Digest()
}

// Hash computes the digest of what is written to it. Its state can be cloned.
type Hash struct{ hash.Cloner }

// New starts a digest.
func New() Hash { return Hash{sha256.New().(hash.Cloner)} }

// Hex is the SHA-256 of what was written so far, as 64 hexadecimal digits.
func (h Hash) Hex() string { return hex.EncodeToString(h.Sum(nil)) }

// Digest is the digest of what was written so far.
func (h Hash) Digest() Digest { return Digest(prefix + h.Hex()) }

// chunk is how much Read reads between two looks at the context, in bytes. The first one is small, as most files are.
const first, chunk = 4 << 10, 1 << 20

// Read reads r to its end, or until ctx does, and returns the number of bytes and their digest. With an io.TeeReader it
// hashes a copy while that is made. Errors are those of r or ctx.
func Read(ctx context.Context, r io.Reader) (n int64, d Digest, err error) {
	h, buf := New(), make([]byte, first)
	for {
		if ctx.Err() != nil {
			return 0, "", context.Cause(ctx)
		}
		if n >= first && len(buf) == first {
			buf = make([]byte, chunk)
		}
		k, err := r.Read(buf)
		h.Write(buf[:k])
		n += int64(k)
		if err == io.EOF {
			return n, h.Digest(), nil
		}
		if err != nil {
			return 0, "", err
		}
	}
}

// File is Read for the file at path.
func File(ctx context.Context, path string) (n int64, d Digest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	n, d, err = Read(ctx, f)
	return n, d, errors.Join(err, f.Close())
}
