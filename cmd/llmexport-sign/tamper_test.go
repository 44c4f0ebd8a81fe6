package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/sigstore-go/pkg/sign"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/provenance"
)

// signed is a package with its bundle and key.
type signed struct {
	dir, bundle, key string
}

// edit changes the bundle as JSON.
func (s signed) edit(t *testing.T, change func(bundle, envelope map[string]any)) {
	t.Helper()
	var b map[string]any
	if err := json.Unmarshal([]byte(read(t, s.bundle)), &b); err != nil {
		t.Fatal(err)
	}
	change(b, b["dsseEnvelope"].(map[string]any))
	data, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.bundle, string(data))
}

// statement replaces the signed statement by what change makes of it, and signs that with the right key.
func (s signed) statement(t *testing.T, change func(map[string]any)) {
	t.Helper()
	_, data, err := provenance.Of(t.Context(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	change(tree)
	if data, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	s.sign(t, &sign.DSSEData{Data: data, PayloadType: provenance.PayloadType})
}

func (s signed) sign(t *testing.T, content sign.Content) {
	t.Helper()
	k, err := readKey(s.key + ".key")
	if err != nil {
		t.Fatal(err)
	}
	b, err := sign.Bundle(content, k, sign.BundleOptions{Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	data, err := marshalBundle(b)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.bundle, string(data))
}

// subjects changes the subjects of a statement.
func subjects(change func([]any) []any) func(map[string]any) {
	return func(s map[string]any) { s["subject"] = change(s["subject"].([]any)) }
}

// flip changes one bit of base64.
func flip(v any, at int) string {
	raw, err := base64.StdEncoding.DecodeString(v.(string))
	if err != nil {
		panic(err)
	}
	raw[(at+len(raw))%len(raw)] ^= 1
	return base64.StdEncoding.EncodeToString(raw)
}

func TestTampering(t *testing.T) {
	first := func(envelope map[string]any) map[string]any {
		return envelope["signatures"].([]any)[0].(map[string]any)
	}
	tests := map[string]struct {
		change func(t *testing.T, s signed)
		code   int
		want   string
	}{
		"nothing": {func(*testing.T, signed) {}, 0, "verified"},
		// Files.
		"weights":    {func(t *testing.T, s signed) { write(t, filepath.Join(s.dir, "llm.mnn.weight"), "weighus") }, 3, "llm.mnn.weight has sha256"},
		"gone":       {func(t *testing.T, s signed) { os.Remove(filepath.Join(s.dir, "config.json")) }, 3, "config.json is missing"},
		"added":      {func(t *testing.T, s signed) { write(t, filepath.Join(s.dir, "extra"), "") }, 3, `"extra" is not in the manifest`},
		"manifest":   {func(t *testing.T, s signed) { write(t, filepath.Join(s.dir, manifest.FileName), "{}") }, 3, "manifest"},
		"no package": {func(t *testing.T, s signed) { os.Remove(filepath.Join(s.dir, manifest.FileName)) }, 1, manifest.FileName},
		"another manifest": {func(t *testing.T, s signed) {
			m, err := manifest.Open(s.dir)
			if err != nil {
				t.Fatal(err)
			}
			m.Name = "other"
			data, err := m.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(s.dir, manifest.FileName), string(data))
		}, 3, "signature:"},
		// The envelope.
		"payload": {func(t *testing.T, s signed) {
			s.edit(t, func(_, e map[string]any) { e["payload"] = flip(e["payload"], 100) })
		}, 3, "signature:"},
		"payload end": {func(t *testing.T, s signed) {
			s.edit(t, func(_, e map[string]any) { e["payload"] = flip(e["payload"], -1) })
		}, 3, "signature:"},
		"payload type": {func(t *testing.T, s signed) { s.edit(t, func(_, e map[string]any) { e["payloadType"] = "text/plain" }) }, 3, "signature:"},
		"signature": {func(t *testing.T, s signed) {
			s.edit(t, func(_, e map[string]any) { first(e)["sig"] = flip(first(e)["sig"], -1) })
		}, 3, "signature:"},
		"no signature": {func(t *testing.T, s signed) { s.edit(t, func(_, e map[string]any) { e["signatures"] = []any{} }) }, 3, "signature:"},
		"two signatures": {func(t *testing.T, s signed) {
			s.edit(t, func(_, e map[string]any) { e["signatures"] = []any{first(e), first(e)} })
		}, 3, "signature:"},
		// The statement, signed with the right key.
		"fewer subjects": {func(t *testing.T, s signed) { s.statement(t, subjects(func(l []any) []any { return l[1:] })) }, 3, "does not name config.json"},
		"more subjects": {func(t *testing.T, s signed) {
			s.statement(t, subjects(func(l []any) []any {
				return append(l, map[string]any{"name": "more", "digest": map[string]any{"sha256": strings.Repeat("0", 64)}})
			}))
		}, 3, `names "more"`},
		"subject twice": {func(t *testing.T, s signed) { s.statement(t, subjects(func(l []any) []any { return append(l, l[0]) })) }, 3, "twice"},
		"other subject": {func(t *testing.T, s signed) {
			s.statement(t, subjects(func(l []any) []any {
				l[0].(map[string]any)["digest"] = map[string]any{"sha256": strings.Repeat("0", 64)}
				return l
			}))
		}, 3, "a different config.json"},
		"subject without SHA-256": {func(t *testing.T, s signed) {
			s.statement(t, subjects(func(l []any) []any { l[0].(map[string]any)["digest"] = map[string]any{"sha512": "00"}; return l }))
		}, 3, "a different config.json"},
		"other predicate": {func(t *testing.T, s signed) {
			s.statement(t, func(m map[string]any) { m["predicateType"] = "https://example.com/x" })
		}, 3, "not provenance"},
		"old statement": {func(t *testing.T, s signed) {
			s.statement(t, func(m map[string]any) { m["_type"] = "https://in-toto.io/Statement/v0.1" })
		}, 3, "not provenance"},
		"no statement": {func(t *testing.T, s signed) {
			s.sign(t, &sign.DSSEData{Data: []byte("hello"), PayloadType: provenance.PayloadType})
		}, 3, "signature:"},
		"a signed file": {func(t *testing.T, s signed) {
			s.sign(t, &sign.PlainData{Data: []byte(read(t, filepath.Join(s.dir, manifest.FileName)))})
		}, 3, "not a statement"},
		// The key.
		"other key": {func(t *testing.T, s signed) { swapKey(t, s) }, 3, "signature: it is not a signature of key SHA256:"},
		"no key":    {func(t *testing.T, s signed) { write(t, s.key+".pub", "") }, 4, "no PEM key"},
		"hint is free": {func(t *testing.T, s signed) {
			s.edit(t, func(b, _ map[string]any) { material(b)["publicKey"] = map[string]any{"hint": "x"} })
		}, 0, "verified"},
		"certificate instead": {func(t *testing.T, s signed) {
			s.edit(t, func(b, _ map[string]any) {
				delete(material(b), "publicKey")
				material(b)["certificate"] = map[string]any{"rawBytes": "AAAA"}
			})
		}, 3, "signature:"},
		// The bundle.
		"empty":         {func(t *testing.T, s signed) { write(t, s.bundle, "") }, 3, "not a sigstore bundle"},
		"cut":           {func(t *testing.T, s signed) { write(t, s.bundle, read(t, s.bundle)[:200]) }, 3, "not a sigstore bundle"},
		"trailing text": {func(t *testing.T, s signed) { write(t, s.bundle, read(t, s.bundle)+"x") }, 3, "not a sigstore bundle"},
		"member twice": {func(t *testing.T, s signed) {
			write(t, s.bundle, strings.Replace(read(t, s.bundle), `{"mediaType"`, `{"mediaType":"x","mediaType"`, 1))
		}, 3, "not a sigstore bundle"},
		"unknown member": {func(t *testing.T, s signed) { s.edit(t, func(b, _ map[string]any) { b["x"] = 1 }) }, 3, "not a sigstore bundle"},
		"version 0.4": {func(t *testing.T, s signed) {
			s.edit(t, func(b, _ map[string]any) { b["mediaType"] = "application/vnd.dev.sigstore.bundle.v0.4+json" })
		}, 3, "not a sigstore bundle"},
		"no material": {func(t *testing.T, s signed) {
			s.edit(t, func(b, _ map[string]any) { delete(b, "verificationMaterial") })
		}, 3, "not a sigstore bundle"},
		"bundle is a link": {func(t *testing.T, s signed) {
			elsewhere := filepath.Join(t.TempDir(), "bundle")
			if err := errors.Join(os.Rename(s.bundle, elsewhere), os.Symlink(elsewhere, s.bundle)); err != nil {
				t.Skipf("symbolic links cannot be made here: %v", err)
			}
		}, 3, "not a regular file"},
		"bundle of gigabytes": {func(t *testing.T, s signed) {
			if err := os.Truncate(s.bundle, 10<<30); err != nil {
				t.Skipf("no such file can be made here: %v", err)
			}
		}, 3, "at most 1048576 bytes"},
		"no bundle": {func(t *testing.T, s signed) { os.Remove(s.bundle) }, 1, manifest.SignatureName},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := signed{dir: newPackage(t), key: newKeyFiles(t, "ecdsa")}
			s.bundle = bundleOf(s.dir)
			program(t, 0, "sign", s.dir, "--key", s.key+".key")
			tc.change(t, s)
			out, errs := program(t, tc.code, "verify", s.dir, "--key", s.key+".pub")
			if !strings.Contains(out+errs, tc.want) {
				t.Errorf("got %q%q, want %q", out, errs, tc.want)
			}
		})
	}
}

func material(bundle map[string]any) map[string]any {
	return bundle["verificationMaterial"].(map[string]any)
}

func swapKey(t *testing.T, s signed) {
	write(t, s.key+".pub", read(t, newKeyFiles(t, "ecdsa")+".pub"))
}

// TestPlaces: a bundle is in its package, or where it was asked to be and the package as it was.
func TestPlaces(t *testing.T) {
	dir, key := newPackage(t), newKeyFiles(t, "ecdsa")
	out := filepath.Join(t.TempDir(), "x.json")
	program(t, 0, "sign", dir, "--key", key+".key", "--out", out)
	if _, err := os.Stat(bundleOf(dir)); err == nil {
		t.Error("the package was signed too")
	}
	program(t, 0, "verify", dir, "--key", key+".pub", "--bundle", out)
	program(t, exit.Failed, "verify", dir, "--key", key+".pub")
	write(t, dir+".sigstore.tmp", "of a killed run")
	for range 2 { // the second replaces the signature of the first
		program(t, 0, "sign", dir, "--key", key+".key")
		program(t, 0, "verify", dir, "--key", key+".pub")
	}
	if left, err := filepath.Glob(dir + "?*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q %v", left, err)
	}
}

// TestLongBundle: a bundle that no package takes is written elsewhere.
func TestLongBundle(t *testing.T) {
	dir, key := newPackage(t), newKeyFiles(t, "ecdsa")
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.Recipe = []byte(`{"x":"` + strings.Repeat("x", manifest.MaxSignature*3/4) + `"}`)
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, manifest.FileName), string(data))
	if _, errs := program(t, exit.Unsupported, "sign", dir, "--key", key+".key"); !strings.Contains(errs, "--out FILE") {
		t.Errorf("got %q", errs)
	}
	out := filepath.Join(t.TempDir(), "x.json")
	program(t, 0, "sign", dir, "--key", key+".key", "--out", out)
	program(t, 0, "verify", dir, "--key", key+".pub", "--bundle", out)
}

// TestSignRefusesDamage: what is not what its manifest says is not signed.
func TestSignRefusesDamage(t *testing.T) {
	dir, key := newPackage(t), newKeyFiles(t, "ecdsa")
	write(t, filepath.Join(dir, "config.json"), "[]")
	_, errs := program(t, exit.Unverified, "sign", dir, "--key", key+".key")
	if !strings.Contains(errs, "config.json") {
		t.Errorf("got %q", errs)
	}
	if _, err := os.Stat(bundleOf(dir)); err == nil {
		t.Error("a bundle was written")
	}
}

// FuzzBundle: what a stranger wrote is read or refused, and verifies with no key unless it is what was signed.
func FuzzBundle(f *testing.F) {
	dir, name := newPackage(f), newKeyFiles(f, "ed25519")
	program(f, 0, "sign", dir, "--key", name+".key")
	good := read(f, bundleOf(dir))
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, `"publicKey":{`,
		`"tlogEntries":[{"logIndex":"1","logId":{"keyId":"AA=="},"kindVersion":{"kind":"dsse","version":"0.0.1"},"integratedTime":"1","inclusionPromise":{"signedEntryTimestamp":"AA=="},"inclusionProof":{"logIndex":"1","rootHash":"AA==","treeSize":"1","checkpoint":{"envelope":"x"}},"canonicalizedBody":"e30="}],"publicKey":{`, 1)))
	f.Add([]byte(strings.Replace(good, `"publicKey":{`, `"timestampVerificationData":{"rfc3161Timestamps":[{"signedTimestamp":"MAA="}]},"publicKey":{`, 1)))
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"x509CertificateChain":{"certificates":[{"rawBytes":"MAA="}]}},"dsseEnvelope":{}}`))
	m, err := manifest.Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	p, err := keyPolicy(name + ".pub")
	if err != nil {
		f.Fatal(err)
	}
	want, err := parseBundle([]byte(good))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := parseBundle(data)
		if (err == nil) == (b == nil) {
			t.Fatalf("bundle %v, error %v", b, err)
		}
		if err != nil {
			return
		}
		if _, err := p.check(b, m); err == nil && string(b.GetDsseEnvelope().GetPayload()) != string(want.GetDsseEnvelope().GetPayload()) {
			t.Fatal("another statement was accepted")
		}
	})
}
