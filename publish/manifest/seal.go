package manifest

import (
	"bytes"
	"fmt"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Marshal returns the canonical bytes of the manifest with its digest. A manifest that Parse would reject is
// tensor.ErrCorrupt. The receiver is not changed.
func (m *Manifest) Marshal() ([]byte, error) {
	data, _, err := m.Seal()
	return data, err
}

// Seal is like Marshal and also returns the digest.
func (m *Manifest) Seal() ([]byte, digest.Digest, error) { return m.seal(MaxSize) }

// digestField precedes the digest. It occurs once: only members of the outermost object follow a line end and one space, and
// strings contain no line ends.
const digestField = "\n \"digest\": \""

// seal writes a manifest of at most limit bytes.
func (m *Manifest) seal(limit int) ([]byte, digest.Digest, error) {
	if err := m.validate(); err != nil {
		return nil, "", err
	}
	c := *m
	c.Digest = ""
	open, err := canonical(&c, limit-digest.Size)
	if err != nil {
		return nil, "", fmt.Errorf("manifest: %w: %w", err, tensor.ErrCorrupt)
	}
	sum := digest.Of(open)
	return bytes.Replace(open, []byte(digestField), []byte(digestField+sum), 1), sum, nil
}
