package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestKeySignsAndVerifies(t *testing.T) {
	for _, kind := range []string{"ecdsa", "ed25519"} {
		t.Run(kind, func(t *testing.T) {
			dir, key := newPackage(t), newKeyFiles(t, kind)
			out, _ := program(t, 0, "sign", dir, "--key", key+".key")
			bundle := bundleOf(dir)
			if !strings.Contains(out, bundle) {
				t.Errorf("sign says %q", out)
			}
			out, _ = program(t, 0, "verify", dir, "--key", key+".pub")
			if !strings.Contains(out, "verified: tiny") || !strings.Contains(out, "signed by: key SHA256:") {
				t.Errorf("verify says %q", out)
			}
			// The package is the same elsewhere, under another name.
			other := filepath.Join(t.TempDir(), "x")
			if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			program(t, 0, "verify", "--bundle", bundle, "--key", key+".pub", "--", other)
			// Signing again replaces the bundle and leaves nothing else.
			first := read(t, bundle)
			program(t, 0, "sign", dir, "--key", key+".key")
			if kind == "ed25519" && read(t, bundle) != first {
				t.Error("Ed25519 gave another bundle")
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*")); len(left) != 1 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestKeyFiles(t *testing.T) {
	name := newKeyFiles(t, "ecdsa")
	if info, err := os.Stat(name + ".key"); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("private key: %v %v", info.Mode(), err)
	}
	write(t, name+"2.key", "")
	program(t, 1, "keygen", name+"2")
	if _, err := os.Stat(name + "2.pub"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a public key without its private one: %v", err)
	}

	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkcs8 := func(k any, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		return block(privateBlock, der)
	}
	good := read(t, name+".key")
	for what, tc := range map[string]struct {
		text string
		want error
	}{
		"empty":     {"", tensor.ErrUnsupported},
		"public":    {read(t, name+".pub"), tensor.ErrUnsupported},
		"two":       {good + good, tensor.ErrUnsupported},
		"headers":   {strings.Replace(good, "KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\n\n", 1), tensor.ErrUnsupported},
		"encrypted": {block("ENCRYPTED SIGSTORE PRIVATE KEY", []byte("x")), tensor.ErrUnsupported},
		"garbage":   {block(privateBlock, []byte("secret")), tensor.ErrCorrupt},
		"huge":      {strings.Repeat("x", maxKey+1), tensor.ErrUnsupported},
		"P-384":     {pkcs8(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)), tensor.ErrUnsupported},
		"RSA":       {pkcs8(rsa.GenerateKey(rand.Reader, 2048)), tensor.ErrUnsupported},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "k")
			write(t, path, tc.text)
			k, err := readKey(path)
			if !errors.Is(err, tc.want) || k != nil {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells the key: %v", err)
			}
		})
	}
	if _, _, err := readPublic(name + ".key"); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("private key as public: %v", err)
	}
	path := filepath.Join(t.TempDir(), "k")
	write(t, path, block(publicBlock, []byte("x")))
	if _, _, err := readPublic(path); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("broken public key: %v", err)
	}
}
