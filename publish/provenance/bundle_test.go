package provenance

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// FuzzSigned: no bundle panics, and a statement is returned only from one with a signature.
func FuzzSigned(f *testing.F) {
	good := fmt.Sprintf(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{},"dsseEnvelope":{"payload":%q,`+
		`"payloadType":%q,"signatures":[{"sig":"c2ln"}]}}`, base64.StdEncoding.EncodeToString([]byte("statement")), PayloadType)
	if s, err := Signed([]byte(good)); err != nil || string(s) != "statement" {
		f.Fatal(string(s), err)
	}
	f.Add([]byte(good))
	for _, edit := range [][2]string{{"sigstore", "other"}, {PayloadType, "text/plain"}, {`"c2ln"`, `""`}, {`[{"sig":"c2ln"}]`, `[]`}, {`{"sig":"c2ln"}`,
		`{"sig":"c2ln"},{"sig":"c2ln"}`}, {"payload", "load"}, {"{", "["}} {
		bad := strings.Replace(good, edit[0], edit[1], 1)
		if s, err := Signed([]byte(bad)); !errors.Is(err, tensor.ErrCorrupt) || s != nil {
			f.Fatalf("%s: %s, %v", bad, s, err)
		}
		f.Add([]byte(bad))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Signed(b)
		if (err == nil) != (len(s) > 0) || err != nil && !errors.Is(err, tensor.ErrCorrupt) {
			t.Fatal(s, err)
		}
	})
}
