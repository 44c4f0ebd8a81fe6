package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestEchoedTokens: a server repeats what it was sent, in headers and in the body, plain, escaped and in base64; the program shows
// none of it in its results, its messages and its files.
func TestEchoedTokens(t *testing.T) {
	const token, password = "hf_0123456789_of+mine/and&no<others", "registry-password"
	var (
		mu     sync.Mutex
		status int
		sent   []string
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		v := r.Header.Get("Authorization")
		_, secret, _ := strings.Cut(v, " ")
		if _, signature, ok := strings.Cut(secret, "Signature="); ok {
			secret = signature
		}
		if v == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		sent = append(sent, secret)
		b64 := base64.StdEncoding.EncodeToString
		text := strings.Join([]string{secret, url.QueryEscape(secret), b64([]byte(secret)), b64([]byte("Bearer " + secret))}, " ")
		for _, name := range []string{"X-Error-Message", "X-Error-Code", "X-Request-Id", "ETag", "Docker-Content-Digest", "X-Amz-Request-Id"} {
			w.Header().Set(name, text)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, strings.ReplaceAll(`{"sha":T,"siblings":[{"rfilename":T}],"Success":false,"Message":T,"errors":[{"code":T,"message":T}],"name":T,
			"<Error><Code>`+text+`</Code><Message>`+text+`</Message></Error>":1}`, "T", fmt.Sprintf("%q", text)))
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	docker := t.TempDir()
	auth := base64.StdEncoding.EncodeToString([]byte("me:" + password))
	if err := os.WriteFile(filepath.Join(docker, "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, host, auth), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"HF_TOKEN": token, "MODELSCOPE_API_TOKEN": token, "HF_ENDPOINT": server.URL, "MODELSCOPE_ENDPOINT": server.URL,
		"HF_HUB_OFFLINE": "", "DOCKER_CONFIG": docker, "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret-key-of-mine"} {
		t.Setenv(name, value)
	}
	for _, status = range []int{200, 400, 401, 403, 404, 409} {
		dir := t.TempDir()
		t.Setenv("HF_HUB_CACHE", filepath.Join(dir, "hub"))
		recipe := filepath.Join(dir, "recipe.yaml")
		if err := os.WriteFile(recipe, []byte("version: 1\nname: x\nmodel: {repo: org/name}\ntarget: {engine: \"3.6\"}\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"plan", "--json", recipe}, {"plan", "--set", "fetch.source=modelscope", recipe}, {"run", "--cache", filepath.Join(dir, "cache"), recipe},
			{"pull", "--json", "hf://org/name", filepath.Join(dir, "a")}, {"pull", "--json", "ms://org/name", filepath.Join(dir, "b")},
			{"pull", "oci://" + host + "/org/name:v1", filepath.Join(dir, "c")},
			{"pull", "s3://bucket/name?region=us-east-1&endpoint=" + server.URL, filepath.Join(dir, "d")},
		} {
			had := len(sent)
			var stdout, stderr bytes.Buffer
			code := run(append([]string{"llmexport", "--log-level", "debug"}, args...), strings.NewReader(""), &stdout, &stderr)
			if code == 0 || len(sent) == had {
				t.Errorf("%q, %d: exit code %d, %d requests with credentials\n%s", args, status, code, len(sent)-had, &stderr)
			}
			shown := stdout.String() + stderr.String()
			if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.Type().IsRegular() {
					b, rerr := os.ReadFile(path)
					shown, err = shown+path+string(b), rerr
				}
				return err
			}); err != nil {
				t.Error(err)
			}
			for _, secret := range slices.Concat([]string{token, password, auth}, sent) {
				for _, form := range []string{secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret)),
					base64.StdEncoding.EncodeToString([]byte("Bearer " + secret))[3:]} {
					if strings.Contains(shown, form) {
						t.Fatalf("%q, %d: %q is in\n%s", args, status, form, shown)
					}
				}
			}
		}
	}
}
