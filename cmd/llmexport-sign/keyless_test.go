package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/sigstore/rekor/pkg/generated/models"
	"github.com/sigstore/sigstore-go/pkg/root"

	"github.com/llmexport/llmexport/internal/exit"
)

func (s *sigstore) login(t *testing.T) {
	t.Setenv(envToken, s.token)
	t.Setenv(envActionsURL, "")
	t.Setenv(envActionsSecret, "")
}

// verifyBy is a check of an identity.
func verifyBy(dir, who, knownTo, rootFile string) []string {
	return append([]string{"verify", dir}, trusting(who, knownTo, rootFile)...)
}

// trusting are the flags of a check of an identity.
func trusting(who, knownTo, rootFile string) []string {
	return []string{"--identity", who, "--issuer", knownTo, "--trusted-root", rootFile}
}

func TestKeyless(t *testing.T) {
	s := newSigstore(t)
	s.login(t)
	dir := newPackage(t)
	program(t, 0, s.command(dir)...)
	full := s.trustedRoot(t, nil)
	out, _ := program(t, 0, verifyBy(dir, identity, issuer, full)...)
	if !strings.Contains(out, "signed by: "+identity+", certified by "+issuer) {
		t.Errorf("verify says %q", out)
	}

	key := newKeyFiles(t, "ecdsa")
	withCT := s.trustedRoot(t, func(logs, ct map[string]*root.TransparencyLog) (map[string]*root.TransparencyLog, map[string]*root.TransparencyLog) {
		return logs, ct
	})
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"another identity":           {verifyBy(dir, "someone@example.org", issuer, full), "signature:"},
		"no expression":              {verifyBy(dir, ".*@example.com", issuer, full), "signature:"},
		"another issuer":             {verifyBy(dir, identity, issuer+"/x", full), "signature:"},
		"another root":               {verifyBy(dir, identity, issuer, newSigstore(t).trustedRoot(t, nil)), "signature:"},
		"not in the log of the root": {verifyBy(dir, identity, issuer, withCT), "signed certificate timestamp"},
		"a key instead":              {[]string{"verify", dir, "--key", key + ".pub"}, "signature:"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, errs := program(t, exit.Unverified, tc.args...); !strings.Contains(errs, tc.want) {
				t.Errorf("got %q, want %q", errs, tc.want)
			}
		})
	}
	write(t, full, "{}")
	program(t, exit.Failed, verifyBy(dir, identity, issuer, full)...)
}

// TestKeylessServices: one witness of the time is enough, unless the root lists the log.
func TestKeylessServices(t *testing.T) {
	s := newSigstore(t)
	s.login(t)
	full := s.trustedRoot(t, nil)
	noLog := s.trustedRoot(t, func(_, _ map[string]*root.TransparencyLog) (map[string]*root.TransparencyLog, map[string]*root.TransparencyLog) {
		return nil, nil
	})
	for name, tc := range map[string]struct {
		flag       string
		full, less int
	}{
		"log only":   {"--tsa", 0, exit.Unverified},
		"stamp only": {"--rekor", exit.Unverified, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newPackage(t)
			program(t, 0, s.command(dir, tc.flag, none)...)
			program(t, tc.full, verifyBy(dir, identity, issuer, full)...)
			program(t, tc.less, verifyBy(dir, identity, issuer, noLog)...)
		})
	}
}

func TestKeylessTampering(t *testing.T) {
	s := newSigstore(t)
	s.login(t)
	full := s.trustedRoot(t, nil)
	entry := func(b map[string]any) map[string]any { return material(b)["tlogEntries"].([]any)[0].(map[string]any) }
	other := newPackage(t)
	program(t, 0, s.command(other)...)
	tests := map[string]func(b, envelope map[string]any){
		"payload": func(_, e map[string]any) { e["payload"] = flip(e["payload"], 50) },
		"signature": func(_, e map[string]any) {
			x := e["signatures"].([]any)[0].(map[string]any)
			x["sig"] = flip(x["sig"], -1)
		},
		"certificate": func(b, _ map[string]any) {
			c := material(b)["certificate"].(map[string]any)
			c["rawBytes"] = flip(c["rawBytes"], -1)
		},
		"no log":   func(b, _ map[string]any) { delete(material(b), "tlogEntries") },
		"log body": func(b, _ map[string]any) { entry(b)["canonicalizedBody"] = flip(entry(b)["canonicalizedBody"], -9) },
		"log time": func(b, _ map[string]any) { entry(b)["integratedTime"] = "1000000000" },
		"log key": func(b, _ map[string]any) {
			id := entry(b)["logId"].(map[string]any)
			id["keyId"] = flip(id["keyId"], 0)
		},
		"log proof": func(b, _ map[string]any) {
			p := entry(b)["inclusionProof"].(map[string]any)
			p["rootHash"] = flip(p["rootHash"], 0)
		},
		"time stamp": func(b, _ map[string]any) {
			x := material(b)["timestampVerificationData"].(map[string]any)["rfc3161Timestamps"].([]any)[0].(map[string]any)
			x["signedTimestamp"] = flip(x["signedTimestamp"], -1)
			// Without it, the time of the log would do.
			delete(entry(b), "inclusionPromise")
		},
		"entry of another": func(b, _ map[string]any) {
			signed{bundle: bundleOf(other)}.edit(t, func(ob, _ map[string]any) { material(b)["tlogEntries"] = material(ob)["tlogEntries"] })
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newPackage(t)
			program(t, 0, s.command(dir)...)
			signed{bundle: bundleOf(dir)}.edit(t, change)
			program(t, exit.Unverified, verifyBy(dir, identity, issuer, full)...)
		})
	}
}

func TestGitHubActions(t *testing.T) {
	s := newSigstore(t)
	t.Setenv(envToken, "")
	t.Setenv(envActionsURL, s.url+oidcPath+"?job=7")
	t.Setenv(envActionsSecret, "runner-secret")
	dir := newPackage(t)
	program(t, 0, s.command(dir)...)
	program(t, 0, verifyBy(dir, identity, issuer, s.trustedRoot(t, nil))...)

	answer := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); fmt.Fprint(w, text) }
	}
	for name, h := range map[string]http.HandlerFunc{
		"refused":  answer(401, "runner-secret"),
		"no JSON":  answer(200, s.token),
		"no token": answer(200, `{}`),
		"broken":   answer(200, `{"value":"a\nb"}`),
		"endless":  endless,
		"sent away": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other?job=7", http.StatusTemporaryRedirect)
		},
		"not a token": answer(200, `{"value":"abc"}`),
	} {
		t.Run(name, func(t *testing.T) {
			s.answers[oidcPath] = h
			s.refuses(t, "")
		})
	}
	delete(s.answers, oidcPath)
	for name, env := range map[string][2]string{
		"no identity":  {"", ""},
		"no secret":    {s.url + oidcPath, ""},
		"plain http":   {"http://example.com/job-secret", "x"},
		"bad address":  {"https://\x7f/job-secret", "x"},
		"broken token": {s.url + oidcPath, "a\nb"},
		"nobody there": {"http://127.0.0.1:1/job-secret", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(envActionsURL, env[0])
			t.Setenv(envActionsSecret, env[1])
			s.refuses(t, "job-secret")
		})
	}
}

// refuses signs a package and demands a failure that leaves nothing and tells no secret.
func (s *sigstore) refuses(t *testing.T, secret string) string {
	t.Helper()
	dir := newPackage(t)
	_, errs := program(t, exit.Failed, s.command(dir)...)
	for _, x := range []string{s.token, "runner-secret", secret} {
		if x != "" && strings.Contains(errs, x) {
			t.Errorf("a secret is told: %q", errs)
		}
	}
	if _, err := os.Stat(bundleOf(dir)); err == nil {
		t.Error("a bundle was written")
	}
	return errs
}

// entryWithout is an entry of a log with this body and nothing of use.
func entryWithout(w http.ResponseWriter, tag string, body any) {
	sum, text := strings.Repeat("0a", 32), "x"
	n := new(int64(1))
	w.Header().Set("ETag", tag)
	writeJSON(w, 201, models.LogEntry{"1": models.LogEntryAnon{
		Body: body, IntegratedTime: n, LogIndex: n, LogID: &sum,
		Verification: &models.LogEntryAnonVerification{InclusionProof: &models.InclusionProof{Hashes: []string{}, RootHash: &sum, LogIndex: n,
			TreeSize: n, Checkpoint: &text}},
	}})
}

func endless(w http.ResponseWriter, r *http.Request) {
	block := []byte(strings.Repeat(" ", 1<<16))
	for r.Context().Err() == nil {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func TestServicesThatFail(t *testing.T) {
	s := newSigstore(t)
	s.login(t)
	var seen []string
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
	}))
	defer stranger.Close()
	answers := map[string]http.HandlerFunc{
		"says the token": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "\x1b[2J bad "+r.Header.Get("Authorization")+s.token, http.StatusForbidden)
		},
		"sends away": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, stranger.URL+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"no answer": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(200) },
		"other JSON": func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, 201, map[string]any{"1": map[string]any{},
				"signedCertificateEmbeddedSct": map[string]any{"chain": map[string]any{"certificates": []string{"x"}}}})
		},
		"other entry": func(w http.ResponseWriter, r *http.Request) {
			entryWithout(w, "1", base64.StdEncoding.EncodeToString([]byte("null")))
		},
		"odd entry": func(w http.ResponseWriter, r *http.Request) {
			entryWithout(w, "1", base64.StdEncoding.EncodeToString([]byte(`{"kind":"dsse","apiVersion":"0.0.1","spec":{}}`)))
		},
		"no body":   func(w http.ResponseWriter, r *http.Request) { entryWithout(w, "1", nil) },
		"other tag": func(w http.ResponseWriter, r *http.Request) { entryWithout(w, "2", "") },
		"conflict": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", rekorPath+"/1")
			writeJSON(w, http.StatusConflict, map[string]any{"code": 409, "message": "there"})
		},
		"endless":  endless,
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for _, path := range []string{fulcioPath, tsaPath, rekorPath} {
		for name, h := range answers {
			t.Run(path+" "+name, func(t *testing.T) {
				s.answers[path] = h
				defer delete(s.answers, path)
				if errs := s.refuses(t, ""); strings.Contains(errs, "\x1b") {
					t.Errorf("what the terminal obeys: %q", errs)
				}
			})
		}
	}
	if len(seen) > 0 {
		t.Errorf("the stranger was asked %d times, with %q", len(seen), seen)
	}
}
