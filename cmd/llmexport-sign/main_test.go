package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
)

// newPackage writes a package of a few files and returns its directory.
func newPackage(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny")
	m := &manifest.Manifest{
		Version: manifest.Version, Name: "tiny", Tool: manifest.Tool{Name: "llmexport", Version: "1.2.0"},
		MinimumEngine: "3.6.0", Target: manifest.Target{Engine: "3.6"}, Recipe: []byte(`{"version":1,"quantize":{"bits":4}}`),
		Source: manifest.Source{Repo: "someone/tiny", Revision: strings.Repeat("0a", 20)},
	}
	for name, text := range map[string]string{"config.json": "{}", "llm.mnn.weight": "weights", "sub/report.txt": "fine"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
		f, err := manifest.HashFile(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		f.Name = name
		m.Files = append(m.Files, f)
	}
	m.Sort()
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, manifest.FileName), string(data))
	return dir
}

// bundleOf is the bundle in a package.
func bundleOf(dir string) string { return filepath.Join(dir, manifest.SignatureName) }

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// program runs the command line and demands its exit code.
func program(t testing.TB, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(args, &out, &errs); got != code {
		t.Fatalf("%q: exit code %d, want %d\n%s%s", args, got, code, out.String(), errs.String())
	}
	if (code == 0) != (errs.Len() == 0) {
		t.Errorf("%q: exit code %d and on standard error: %q", args, code, errs.String())
	}
	return out.String(), errs.String()
}

// newKey makes NAME.key and NAME.pub and returns NAME.
func newKeyFiles(t testing.TB, kind string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), kind)
	program(t, 0, "keygen", name, "--type", kind)
	return name
}

func TestUsage(t *testing.T) {
	dir := newPackage(t)
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"help":            {nil, 0, "COMMANDS"},
		"help asked":      {[]string{"--help"}, 0, "COMMANDS"},
		"help of command": {[]string{"sign", "--help"}, 0, "--keyless"},
		"provenance":      {[]string{"provenance", dir}, 0, `"https://in-toto.io/Statement/v1"`},
		"unknown":         {[]string{"sing"}, 2, `unknown command "sing"`},
		"unknown flag":    {[]string{"sign", dir, "--kee"}, 2, "kee"},
		"no package":      {[]string{"sign", "--key", "x"}, 2, "needs PACKAGE_DIR, got 0"},
		"two packages":    {[]string{"sign", "--key", "x", "--", dir, "--key"}, 2, "got 2"},
		"no signer":       {[]string{"sign", dir}, 2, "either --key or --keyless"},
		"two signers":     {[]string{"sign", dir, "--keyless", "--key", "x"}, 2, "either --key or --keyless"},
		"no trust":        {[]string{"verify", dir}, 2, "needs --key"},
		"half an identity": {
			[]string{"verify", dir, "--identity", "a", "--issuer", "b"}, 2, "all of --identity",
		},
		"key and identity":  {[]string{"verify", dir, "--key", "k", "--identity", "a"}, 2, "either --key"},
		"no such package":   {[]string{"provenance", dir + "x"}, 1, "manifest.json"},
		"no such key":       {[]string{"sign", dir, "--key", dir + "x"}, 1, "tinyx"},
		"no such bundle":    {[]string{"verify", dir, "--key", newKeyFiles(t, "ecdsa") + ".pub"}, 1, manifest.SignatureName},
		"key is a package":  {[]string{"sign", dir, "--key", dir}, 1, "not a regular file"},
		"kind of key":       {[]string{"keygen", "x", "--type", "rsa"}, 2, "must be ecdsa or ed25519"},
		"keygen over a key": {[]string{"keygen", newKeyFiles(t, "ecdsa")}, 1, ".pub"},
		"bundle in package": {[]string{"sign", dir, "--key", newKeyFiles(t, "ecdsa") + ".key", "--out", filepath.Join(dir, "sub", "x")}, 2, "lies in the package"},
		"nobody vouches":    {[]string{"sign", dir, "--keyless", "--rekor", "none", "--tsa", "none"}, 2, "cannot both be none"},
		"plain http":        {[]string{"sign", dir, "--keyless", "--fulcio", "http://example.com"}, 2, "is not the address of a service"},
		"no authority":      {[]string{"sign", dir, "--keyless", "--fulcio", "none"}, 2, "is not the address of a service"},
		"password":          {[]string{"sign", dir, "--keyless", "--rekor", "https://u:p@example.com"}, 2, "is not the address of a service"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out, errs := program(t, tc.code, tc.args...)
			if !strings.Contains(out+errs, tc.want) {
				t.Errorf("got %q%q, want %q", out, errs, tc.want)
			}
		})
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*")); err != nil || len(left) != 1 {
		t.Errorf("left behind: %q %v", left, err)
	}
}
