package stage_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/provenance"
	"github.com/llmexport/llmexport/recipes"
)

// fakeSigner, in the environment, makes this binary a program that signs, and goes wrong as it says.
const fakeSigner = "STAGE_TEST_SIGNER"

// fakeSign signs by digests, with bytes that differ from run to run as those of a real signature.
func fakeSign(mode string, args []string) error {
	dir, out := args[1], args[3]
	if args[0] == "verify" {
		b, err := os.ReadFile(out)
		if err != nil {
			return err
		}
		key, err := os.ReadFile(args[5])
		if err == nil && (mode == "rejected" || string(key) != "public" || !json.Valid(b)) {
			err = errors.New("the signature is not of this key")
		}
		return err
	}
	_, statement, err := provenance.Of(context.Background(), dir)
	if err != nil {
		return err
	}
	switch mode {
	case "broken":
		return errors.New("the key is locked")
	case "silent":
		return nil
	case "garbage":
		return os.WriteFile(out, []byte("garbage"), 0o666)
	case "huge":
		return os.WriteFile(out, make([]byte, manifest.MaxSignature+1), 0o666)
	case "other":
		statement = []byte(strings.Replace(string(statement), "small", "large", 1))
	}
	salt := make([]byte, 8)
	_, _ = rand.Read(salt)
	b, err := json.Marshal(map[string]any{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "dsseEnvelope": map[string]any{
		"payload": statement, "payloadType": provenance.PayloadType,
		"signatures": []map[string]any{{"sig": append(salt, digest.Of(statement)...)}},
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(out, b, 0o666)
}

// A signed package is published with its signature, which a rerun keeps; a signature that is not right publishes nothing.
func TestSign(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const signed = unverified + "\nquantize: {block: 32}\nsign: {command: PROGRAM, key: release.key}\n"
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	fresh := func(t *testing.T) work {
		w := newWork(t, families+"qwen3-tied", strings.Replace(signed, "PROGRAM", fmt.Sprintf("%q", filepath.ToSlash(program)), 1))
		for name, text := range map[string]string{"release.key": "secret", "release.pub": "public"} {
			if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return w
	}
	t.Setenv(fakeSigner, "good")
	w := fresh(t)
	w.must(t)
	bundle, err := manifest.ReadSignature(w.out())
	if err != nil || bundle == nil {
		t.Fatalf("%q, %v", bundle, err)
	}
	_, want, err := provenance.Of(t.Context(), w.out())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := provenance.Signed(bundle); err != nil || string(got) != string(want) {
		t.Errorf("%s, %v", got, err)
	}
	m, err := manifest.Open(w.out())
	if err != nil || strings.Contains(string(m.Recipe), "sign") || strings.Contains(string(m.Recipe), "release") {
		t.Errorf("the recipe of the package: %s, %v", m.Recipe, err)
	}
	again := w.must(t)
	if s := again[0].Published[0].Status; s != place.Unchanged {
		t.Errorf("again: %s", s)
	}
	if b, err := manifest.ReadSignature(w.out()); err != nil || string(b) != string(bundle) {
		t.Errorf("another signature: %v", err)
	}

	for mode, want := range map[string]string{
		"broken": "sign: exit status 3: the key is locked", "silent": "the program has written none",
		"garbage": "not a bundle with a signed statement",
		"huge":    "the limit is 1048576", "other": "it is about something other than this package",
		"rejected": "verify: exit status 3: the signature is not of this key",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Setenv(fakeSigner, mode)
			w := fresh(t)
			_, err := w.run(t)
			if err == nil || !strings.HasPrefix(err.Error(), "sign: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			if unusable := (*stage.SignatureError)(nil); mode != "broken" && !errors.As(err, &unusable) {
				t.Errorf("%T", err)
			}
			if _, err := os.Stat(w.out()); err == nil {
				t.Error("the package was published")
			}
			t.Setenv(fakeSigner, "good") // what went wrong is not kept
			w.must(t)
		})
	}
	for sign, want := range map[string]string{
		"{command: no-such-program, key: release.key}":                   "sign.command: exec: \"no-such-program\": executable file not found",
		"{command: PROGRAM}":                                             "needs either key or keyless",
		"{command: PROGRAM, key: absent.key}":                            "sign.key: stat",
		"{command: PROGRAM, key: release.key, public: absent.pub}":       "sign.public: stat",
		"{command: PROGRAM, key: release.key, issuer: x}":                "go with keyless",
		"{command: PROGRAM, keyless: true}":                              "needs identity, issuer and trusted_root",
		"{command: PROGRAM, key: release.key, keyless: true}":            "needs either key or keyless",
		"{command: PROGRAM, keyless: true, public: x}":                   "goes with key",
		"{command: PROGRAM, key: release.key, public: ., trustedroot: }": "unknown key",
	} {
		_, err := w.run(t, "sign="+strings.Replace(sign, "PROGRAM", fmt.Sprintf("%q", filepath.ToSlash(program)), 1))
		if positioned := (*recipes.Error)(nil); err == nil || !errors.As(err, &positioned) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", sign, err, want)
		}
	}
}
