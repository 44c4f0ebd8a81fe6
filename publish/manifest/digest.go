package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Digest is "sha256:" and 64 lower-case hexadecimal digits.
type Digest string

const digestPrefix = "sha256:"

// ParseDigest checks the form of a digest. Other forms are tensor.ErrCorrupt; a valid digest may be used in a file name.
func ParseDigest(s string) (Digest, error) {
	h, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || !validHex(h) {
		return "", fmt.Errorf("digest %.80q is not sha256: and 64 lower-case hex digits: %w", s, tensor.ErrCorrupt)
	}
	return Digest(s), nil
}

// Hex returns the digest without its prefix.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), digestPrefix) }

// DigestOf returns the SHA-256 of data.
func DigestOf(data []byte) Digest {
	sum := sha256.Sum256(data)
	return Digest(digestPrefix + hex.EncodeToString(sum[:]))
}

// The roles of the files that determine the output of a package.
const (
	RoleGraph     = "graph"
	RoleWeights   = "weights"
	RoleModel     = "model"
	RoleTokenizer = "tokenizer"
)

// Content returns the digest of the names and digests of the files that determine the output of a package: graphs, weights,
// llm_config.json, tokenizer. config.json records it. It cannot record the manifest's own digest, because the manifest lists
// config.json.
func (m *Manifest) Content() Digest {
	var b []byte
	for _, f := range m.Files {
		switch f.Role {
		case RoleGraph, RoleWeights, RoleModel, RoleTokenizer:
			b = fmt.Appendf(b, "%s  %s\n", f.SHA256, f.Name)
		}
	}
	return DigestOf(b)
}

func validHex(s string) bool {
	if len(s) != hex.EncodedLen(sha256.Size) {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
