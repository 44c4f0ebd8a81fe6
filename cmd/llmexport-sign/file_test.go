package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sigstore/sigstore-go/pkg/sign"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/publish/provenance"
)

// newFiles writes two files and returns their paths.
func newFiles(t testing.TB) (a, b string) {
	t.Helper()
	dir := t.TempDir()
	a, b = filepath.Join(dir, "a"), filepath.Join(dir, "b.exe")
	write(t, a, "one file")
	write(t, b, "")
	return a, b
}

// listed are the names in the directory of a file.
func listed(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// editFile changes the bundle of a file as JSON.
func editFile(t *testing.T, path string, change func(bundle, message map[string]any)) {
	t.Helper()
	var b map[string]any
	must(t, json.Unmarshal([]byte(read(t, path+fileBundle)), &b))
	change(b, b["messageSignature"].(map[string]any))
	data, err := json.Marshal(b)
	must(t, err)
	write(t, path+fileBundle, string(data))
}

func TestFiles(t *testing.T) {
	a, b := newFiles(t)
	key := newKeyFiles(t, "ecdsa")
	write(t, a+fileBundle, "the bundle of another day")
	write(t, a+fileBundle+".tmp", "of a killed run")
	for range 2 { // the second replaces the bundles of the first
		out, _ := program(t, 0, "sign-file", a, b, "--key", key+".key")
		if !strings.Contains(out, a+fileBundle+": sha256:") || !strings.Contains(out, b+fileBundle+": sha256:e3b0c44298fc1c14") {
			t.Errorf("sign-file says %q", out)
		}
		if got, want := listed(t, a), []string{"a", "a" + fileBundle, "b.exe", "b.exe" + fileBundle}; !slices.Equal(got, want) {
			t.Errorf("there are %q, want %q", got, want)
		}
		out, _ = program(t, 0, "verify-file", "--key", key+".pub", a, b)
		for _, want := range []string{"verified: " + a + ", sha256:", "verified: " + b, "signed by: key SHA256:"} {
			if !strings.Contains(out, want) {
				t.Errorf("verify-file says %q, want %q", out, want)
			}
		}
	}
	// What other programs check: the form, and a plain signature over the SHA-256.
	var bundle struct {
		MediaType        string
		MessageSignature struct {
			MessageDigest struct {
				Algorithm string
				Digest    []byte
			}
			Signature []byte
		}
	}
	must(t, json.Unmarshal([]byte(read(t, a+fileBundle)), &bundle))
	sum, message := sha256.Sum256([]byte("one file")), bundle.MessageSignature
	if bundle.MediaType != "application/vnd.dev.sigstore.bundle.v0.3+json" || message.MessageDigest.Algorithm != "SHA2_256" ||
		!bytes.Equal(message.MessageDigest.Digest, sum[:]) {
		t.Errorf("the bundle is %+v", bundle)
	}
	k, err := readKey(key + ".key")
	must(t, err)
	if !ecdsa.VerifyASN1(k.GetPublicKey().(*ecdsa.PublicKey), sum[:], message.Signature) {
		t.Error("the signature is not one over the SHA-256 of the file")
	}
}

func TestFilesKeyless(t *testing.T) {
	s := newSigstore(t)
	s.login(t)
	certificates, entries := 0, 0
	s.answers[fulcioPath] = func(w http.ResponseWriter, r *http.Request) { certificates++; s.certify(w, r) }
	s.answers[rekorPath] = func(w http.ResponseWriter, r *http.Request) { entries++; s.enter(w, r) }
	a, b := newFiles(t)
	program(t, 0, s.keyless("sign-file", a, b)...)
	if certificates != 1 || entries != 2 {
		t.Errorf("%d certificates and %d entries in the log for two files", certificates, entries)
	}
	full := s.trustedRoot(t, nil)
	out, _ := program(t, 0, append([]string{"verify-file", a, b}, trusting(identity, issuer, full)...)...)
	if !strings.Contains(out, "signed by: "+identity+", certified by "+issuer) {
		t.Errorf("verify-file says %q", out)
	}
	for name, tc := range map[string]struct {
		args   []string
		change func(bundle, message map[string]any)
	}{
		"another identity": {args: trusting("someone@example.org", issuer, full)},
		"another issuer":   {args: trusting(identity, issuer+"/x", full)},
		"another root":     {args: trusting(identity, issuer, newSigstore(t).trustedRoot(t, nil))},
		"a key instead":    {args: []string{"--key", newKeyFiles(t, "ecdsa") + ".pub"}},
		"signature":        {change: func(_, m map[string]any) { m["signature"] = flip(m["signature"], -1) }},
		"certificate": {change: func(b, _ map[string]any) {
			c := material(b)["certificate"].(map[string]any)
			c["rawBytes"] = flip(c["rawBytes"], -1)
		}},
		"no log": {change: func(b, _ map[string]any) { delete(material(b), "tlogEntries") }},
		"no stamp": {change: func(b, _ map[string]any) {
			material(b)["timestampVerificationData"] = map[string]any{}
			withoutPromise(b)
		}},
		"entry of another": {change: func(m, _ map[string]any) {
			var other map[string]any
			must(t, json.Unmarshal([]byte(read(t, b+fileBundle)), &other))
			material(m)["tlogEntries"] = material(other)["tlogEntries"]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			good := read(t, a+fileBundle)
			defer write(t, a+fileBundle, good)
			args := tc.args
			if tc.change != nil {
				args = trusting(identity, issuer, full)
				editFile(t, a, tc.change)
			}
			_, errs := program(t, exit.Unverified, append([]string{"verify-file", a}, args...)...)
			if !strings.Contains(errs, a+": signature:") {
				t.Errorf("got %q", errs)
			}
		})
	}
}

// withoutPromise takes the time of the log out of a bundle.
func withoutPromise(b map[string]any) {
	delete(material(b)["tlogEntries"].([]any)[0].(map[string]any), "inclusionPromise")
}

func TestFileTampering(t *testing.T) {
	digest := func(m map[string]any) map[string]any { return m["messageDigest"].(map[string]any) }
	message := func(change func(m map[string]any)) func(t *testing.T, a, b string, s signed) {
		return func(t *testing.T, a, _ string, _ signed) {
			editFile(t, a, func(_, m map[string]any) { change(m) })
		}
	}
	tests := map[string]struct {
		change func(t *testing.T, a, b string, s signed)
		code   int
		want   string // with the name of the file in place of FILE
	}{
		"nothing":   {func(*testing.T, string, string, signed) {}, 0, "verified: FILE"},
		"bit":       {func(t *testing.T, a, _ string, _ signed) { write(t, a, "one fild") }, 3, "FILE: signature: it is not a signature of key"},
		"longer":    {func(t *testing.T, a, _ string, _ signed) { write(t, a, "one file\n") }, 3, "for this file"},
		"empty":     {func(t *testing.T, a, _ string, _ signed) { write(t, a, "") }, 3, "for this file"},
		"gone":      {func(t *testing.T, a, _ string, _ signed) { os.Remove(a) }, 1, "FILE"},
		"directory": {func(t *testing.T, a, _ string, _ signed) { os.Remove(a); os.Mkdir(a, 0o755) }, 1, "FILE: not a regular file"},
		// The bundle.
		"no bundle": {func(t *testing.T, a, _ string, _ signed) { os.Remove(a + fileBundle) }, 1, "FILE is not signed"},
		"bundle is a directory": {func(t *testing.T, a, _ string, _ signed) {
			os.Remove(a + fileBundle)
			os.Mkdir(a+fileBundle, 0o755)
		}, 1, "FILE" + fileBundle + ": not a regular file"},
		"bundle of another": {func(t *testing.T, a, b string, _ signed) {
			write(t, a+fileBundle, read(t, b+fileBundle))
		}, 3, "FILE: signature:"},
		"bundle of a package": {func(t *testing.T, a, _ string, s signed) {
			write(t, a+fileBundle, read(t, s.bundle))
		}, 3, "FILE" + fileBundle + ": the bundle contains a statement"},
		"statement about the file": {func(t *testing.T, a, _ string, s signed) {
			sum := sha256.Sum256([]byte("one file"))
			s.bundle = a + fileBundle
			s.sign(t, &sign.DSSEData{Data: []byte(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"a","digest":{"sha256":"` +
				hex.EncodeToString(sum[:]) + `"}}],"predicateType":"x","predicate":{}}`), PayloadType: provenance.PayloadType})
		}, 3, "the bundle contains a statement"},
		"no JSON": {func(t *testing.T, a, _ string, _ signed) {
			write(t, a+fileBundle, "")
		}, 3, "FILE" + fileBundle + ": not a sigstore bundle"},
		"cut": {func(t *testing.T, a, _ string, _ signed) {
			write(t, a+fileBundle, read(t, a+fileBundle)[:99])
		}, 3, "not a sigstore bundle"},
		"huge": {func(t *testing.T, a, _ string, _ signed) {
			if err := os.Truncate(a+fileBundle, 10<<30); err != nil {
				t.Skipf("no such file can be made here: %v", err)
			}
		}, 4, "more than"},
		"signature":    {message(func(m map[string]any) { m["signature"] = flip(m["signature"], -1) }), 3, "FILE: signature:"},
		"no signature": {message(func(m map[string]any) { m["signature"] = "" }), 3, "FILE"},
		"digest":       {message(func(m map[string]any) { digest(m)["digest"] = flip(digest(m)["digest"], 0) }), 3, "FILE: signature:"},
		"no digest":    {message(func(m map[string]any) { delete(m, "messageDigest") }), 3, "FILE"},
		"algorithm":    {message(func(m map[string]any) { digest(m)["algorithm"] = "SHA2_512" }), 3, "over SHA2_512 of the file"},
		"digest of the changed file": {func(t *testing.T, a, _ string, _ signed) {
			write(t, a, "one fild")
			sum := sha256.Sum256([]byte("one fild"))
			editFile(t, a, func(_, m map[string]any) { digest(m)["digest"] = base64.StdEncoding.EncodeToString(sum[:]) })
		}, 3, "FILE: signature:"},
		// The key.
		"other key": {func(t *testing.T, _, _ string, s signed) { swapKey(t, s) }, 3, "FILE: signature: it is not a signature of key SHA256:"},
		"Ed25519 key": {func(t *testing.T, _, _ string, s signed) {
			write(t, s.key+".pub", read(t, newKeyFiles(t, "ed25519")+".pub"))
		}, 4, "use an ECDSA P-256 key"},
		"no key": {func(t *testing.T, _, _ string, s signed) { os.Remove(s.key + ".pub") }, 1, ".pub"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := newFiles(t)
			s := signed{dir: newPackage(t), key: newKeyFiles(t, "ecdsa")}
			s.bundle = bundleOf(s.dir)
			program(t, 0, "sign", s.dir, "--key", s.key+".key")
			program(t, 0, "sign-file", a, b, "--key", s.key+".key")
			tc.change(t, a, b, s)
			for _, args := range [][]string{{a}, {a, b}, {b, a}} { // one wrong file is enough
				out, errs := program(t, tc.code, append([]string{"verify-file", "--key", s.key + ".pub"}, args...)...)
				if want := strings.ReplaceAll(tc.want, "FILE", a); !strings.Contains(out+errs, want) {
					t.Errorf("got %q%q, want %q", out, errs, want)
				}
				if tc.code != 0 && (strings.Contains(out, a+",") || strings.Contains(out, "signed by")) {
					t.Errorf("says %q of a file that is wrong", out)
				}
			}
		})
	}
	t.Run("every wrong file is named", func(t *testing.T) {
		a, b := newFiles(t)
		key := newKeyFiles(t, "ecdsa")
		program(t, 0, "sign-file", a, "--key", key+".key")
		write(t, a, "")
		_, errs := program(t, exit.Unverified, "verify-file", b, a, "--key", key+".pub")
		if !strings.Contains(errs, a+": signature:") || !strings.Contains(errs, b+" is not signed") {
			t.Errorf("got %q", errs)
		}
	})
}

// TestFilesAllOrNothing: if one file cannot be signed, no bundle is written, and those from before are as they were.
func TestFilesAllOrNothing(t *testing.T) {
	key, ed25519 := newKeyFiles(t, "ecdsa"), newKeyFiles(t, "ed25519")
	s := newSigstore(t)
	s.login(t)
	with := func(more ...string) func(a, b string) []string {
		return func(a, b string) []string { return append([]string{"sign-file", a, b}, more...) }
	}
	withKey := with("--key", key+".key")
	keyless := func(a, b string) []string { return s.keyless("sign-file", a, b) }
	also := func(more func(a, b string) string) func(a, b string) []string {
		return func(a, b string) []string { return []string{"sign-file", more(a, b), a, b, "--key", key + ".key"} }
	}
	// second does something when a service is asked for the second file.
	second := func(path string, service http.HandlerFunc, do func(b string, cancel func())) func(b string, cancel func()) {
		return func(b string, cancel func()) {
			n := 0
			s.answers[path] = func(w http.ResponseWriter, r *http.Request) {
				if n++; n == 2 {
					do(b, cancel)
				}
				service(w, r)
			}
		}
	}
	interrupt := func(_ string, cancel func()) { cancel() }
	tests := map[string]struct {
		args    func(a, b string) []string
		prepare func(b string, cancel func())
		code    int
		want    string
	}{
		"no file":     {withKey, func(b string, _ func()) { os.Remove(b) }, 1, "b.exe"},
		"a directory": {withKey, func(b string, _ func()) { os.Remove(b); os.Mkdir(b, 0o755) }, 1, "b.exe: not a regular file"},
		"output is one": {withKey, func(b string, _ func()) {
			os.Mkdir(b+fileBundle, 0o755)
		}, 1, "b.exe" + fileBundle + ": not a regular file"},
		"no place": {withKey, func(b string, _ func()) { os.MkdirAll(b+fileBundle+".tmp/x", 0o755) }, 1, "b.exe" + fileBundle},
		"no renaming": {keyless, second(rekorPath, s.enter, func(b string, _ func()) {
			os.Mkdir(b+fileBundle, 0o755)
		}), 1, "b.exe" + fileBundle},
		"twice":          {also(func(a, _ string) string { return filepath.Dir(a) + "/./a" }), nil, 2, "given twice"},
		"bundle of one":  {also(func(a, _ string) string { return a + fileBundle }), nil, 2, "leave it out"},
		"temporary file": {also(func(_, b string) string { return b + fileBundle + ".tmp" }), nil, 2, "leave it out"},
		"no key":         {with("--key", key), nil, 1, filepath.Base(key)},
		"public key":     {with("--key", key+".pub"), nil, 4, "PRIVATE KEY"},
		"Ed25519":        {with("--key", ed25519+".key"), nil, 4, "use an ECDSA P-256 key"},
		"no signer":      {with(), nil, 2, "sign-file needs either --key or --keyless"},
		"no files":       {func(_, _ string) []string { return []string{"sign-file", "--keyless"} }, nil, 2, "needs FILE..., got 0"},
		"interrupted":    {withKey, interrupt, 130, "interrupted"},
		"interrupted at the log": {
			keyless, second(rekorPath, s.enter, interrupt), 130, "interrupted",
		},
		"interrupted at the end": {func(a, b string) []string {
			return append(keyless(a, b), "--rekor", none)
		}, second(tsaPath, s.stamp, interrupt), 130, "interrupted"},
		"log fails": {keyless, func(string, func()) {
			n := 0
			s.answers[rekorPath] = func(w http.ResponseWriter, r *http.Request) {
				if n++; n == 2 {
					http.Error(w, s.token, http.StatusInternalServerError)
					return
				}
				s.enter(w, r)
			}
		}, 1, "b.exe: "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := newFiles(t)
			write(t, a+fileBundle, "the bundle from before")
			defer clear(s.answers)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.prepare != nil {
				tc.prepare(b, cancel)
			}
			before := listed(t, a)
			var out, errs bytes.Buffer
			if code := report(ctx, &errs, execute(ctx, tc.args(a, b), &out)); code != tc.code || !strings.Contains(errs.String(), tc.want) {
				t.Errorf("exit code %d, %q; want %d, %q", code, errs.String(), tc.code, tc.want)
			}
			if strings.Contains(errs.String(), s.token) {
				t.Errorf("the token is told: %q", errs.String())
			}
			if out.Len() > 0 {
				t.Errorf("it says %q", out.String())
			}
			if got := read(t, a+fileBundle); got != "the bundle from before" {
				t.Errorf("the bundle from before is %.60q", got)
			}
			after := slices.DeleteFunc(listed(t, a), func(name string) bool { // which the test itself made on the way
				info, err := os.Stat(filepath.Join(filepath.Dir(a), name))
				return err == nil && info.IsDir() && !slices.Contains(before, name)
			})
			if !slices.Equal(after, before) {
				t.Errorf("there are %q, before %q", after, before)
			}
		})
	}
}

// TestFilesAreStreamed: a file of some size is never in memory.
func TestFilesAreStreamed(t *testing.T) {
	const size, limit = 64 << 20, 16 << 20 // bytes
	a, _ := newFiles(t)
	if err := os.Truncate(a, size); err != nil {
		t.Fatal(err)
	}
	key := newKeyFiles(t, "ecdsa")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	program(t, 0, "sign-file", a, "--key", key+".key")
	program(t, 0, "verify-file", a, "--key", key+".pub")
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > limit {
		t.Errorf("%d bytes were allocated for a file of %d, the limit is %d", n, size, limit)
	}
}

// FuzzFileBundle: what a stranger wrote is read or refused, and verifies no file that the key has not signed.
func FuzzFileBundle(f *testing.F) {
	a, _ := newFiles(f)
	name := newKeyFiles(f, "ecdsa")
	program(f, 0, "sign-file", a, "--key", name+".key")
	good := read(f, a+fileBundle)
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, "SHA2_256", "SHA2_512", 1)))
	f.Add([]byte(strings.Replace(good, `"publicKey":{`,
		`"timestampVerificationData":{"rfc3161Timestamps":[{"signedTimestamp":"MAA="}]},"publicKey":{`, 1)))
	f.Add([]byte(strings.Replace(good, `"messageDigest":{`, `"messageDigest":null,"x":{`, 1)))
	f.Add([]byte(good[:strings.Index(good, `"messageSignature"`)] + `"messageSignature":{}}`))
	p, err := keyPolicy(name + ".pub")
	if err != nil {
		f.Fatal(err)
	}
	b, err := parseFileBundle([]byte(good))
	if err != nil {
		f.Fatal(err)
	}
	sum := hex.EncodeToString(b.GetMessageSignature().GetMessageDigest().GetDigest())
	if _, _, err := p.verify(b, sum, "file"); err != nil {
		f.Fatal(err)
	}
	unsigned := strings.Repeat("0a", sha256.Size)
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := parseFileBundle(data)
		if (err == nil) == (b == nil) {
			t.Fatalf("bundle %v, error %v", b, err)
		}
		if err != nil {
			return
		}
		if _, _, err := p.verify(b, unsigned, "file"); err == nil {
			t.Fatal("a file was accepted that nobody signed")
		}
	})
}
