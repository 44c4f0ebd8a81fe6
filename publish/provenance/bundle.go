package provenance

import (
	"errors"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// bundleType is the media type of a sigstore bundle up to its version.
const bundleType = "application/vnd.dev.sigstore.bundle"

// Signed returns the statement in a sigstore bundle. The signature is not verified: the caller learns what was signed, and
// not by whom. What is not a DSSE envelope around a statement, with one signature, is tensor.ErrCorrupt.
func Signed(bundle []byte) (statement []byte, err error) {
	var b struct {
		MediaType    string `json:"mediaType"`
		DSSEEnvelope struct {
			Payload     []byte `json:"payload"`
			PayloadType string `json:"payloadType"`
			Signatures  []struct {
				Sig []byte `json:"sig"`
			} `json:"signatures"`
		} `json:"dsseEnvelope"`
	}
	if err = jsondoc.Decode(bundle, &b); err == nil {
		e := &b.DSSEEnvelope
		switch {
		case !strings.HasPrefix(b.MediaType, bundleType):
			err = fmt.Errorf("its type is %.80q", b.MediaType)
		case e.PayloadType != PayloadType || len(e.Payload) == 0:
			err = errors.New("it has no statement")
		case len(e.Signatures) != 1 || len(e.Signatures[0].Sig) == 0:
			err = errors.New("it does not have one signature")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("not a bundle with a signed statement: %w: %w", err, tensor.ErrCorrupt)
	}
	return b.DSSEEnvelope.Payload, nil
}
