//go:build hf_tokenizers && cgo

package verify_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/verify"
)

// TestLibrary compares the source's tokenizer with the library, and with the library running another tokenizer.
func TestLibrary(t *testing.T) {
	for _, c := range []struct {
		name, old, new, says string
	}{
		{name: "same", says: "same ids on"},
		{name: "other", old: `"NFC"`, new: `"NFKC"`, says: "the library tokenizers returns different ids for"},
		{name: "refused", old: `"NFC"`, new: `"None"`, says: "library tokenizers: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, goodPackage(t), tiny)
			b, err := s.Source.TokenizerJSON()
			if err != nil {
				t.Fatal(err)
			}
			s.Source.TokenizerJSON = func() ([]byte, error) {
				return bytes.ReplaceAll(b, []byte(c.old), []byte(c.new)), nil
			}
			res, err := verify.Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			f := res.Checks[slices.IndexFunc(res.Checks, func(c manifest.Check) bool { return c.Name == "tokenizer" })]
			if f.Passed != (c.old == "") || !strings.Contains(f.Detail, c.says) {
				t.Errorf("passed %v: %s", f.Passed, f.Detail)
			}
			if n := f.Value["library"]; c.name == "same" && (n < 20000 || f.Value["library_different"] != 0) {
				t.Errorf("%v strings, %v of them different", n, f.Value["library_different"])
			}
		})
	}
}
