package digest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/llmexport/llmexport/internal/fault"
)

// abc is the SHA-256 of "abc", from FIPS 180-4.
const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

func TestDigest(t *testing.T) {
	t.Parallel()
	d := Of([]byte("abc"))
	if d != "sha256:"+abc || d.Hex() != abc || len(d) != Size {
		t.Errorf("%s, %s", d, d.Hex())
	}
	h := New()
	io.WriteString(h, "abc")
	if h.Hex() != abc || h.Digest() != d {
		t.Errorf("%s, %s", h.Hex(), h.Digest())
	}
	if p, err := Parse(string(d)); err != nil || p != d {
		t.Errorf("%s, %v", p, err)
	}
	for _, bad := range []string{"", abc, "sha256:", "sha256:" + abc[1:], "sha256:" + abc + "0", "sha256:" + strings.ToUpper(abc),
		"sha1:" + abc, "sha256:../" + abc[3:]} {
		if p, err := Parse(bad); p != "" || !errors.Is(err, fault.ErrCorrupt) {
			t.Errorf("%q: %q, %v", bad, p, err)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	data := bytes.Repeat([]byte("0123456789abcdef"), chunk/16+1)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	n, d, err := File(t.Context(), path)
	if err != nil || n != int64(len(data)) || d != Of(data) {
		t.Errorf("%d bytes, %s, %v", n, d, err)
	}
	if n, d, err := Read(t.Context(), iotest.OneByteReader(strings.NewReader("abc"))); n != 3 || d.Hex() != abc || err != nil {
		t.Errorf("%d bytes, %s, %v", n, d, err)
	}
	bad := errors.New("bad")
	if n, d, err := Read(t.Context(), iotest.ErrReader(bad)); n != 0 || d != "" || !errors.Is(err, bad) {
		t.Errorf("%d bytes, %s, %v", n, d, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(bad)
	if _, d, err := File(ctx, path); d != "" || !errors.Is(err, bad) {
		t.Errorf("%s, %v", d, err)
	}
	if _, _, err := File(t.Context(), path+"x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
