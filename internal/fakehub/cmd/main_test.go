package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun serves a folder, with a digest that is not looked at and a fault.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	digest := strings.Repeat("ab", 32)
	for name, content := range map[string]string{"org/tiny/config.json": "{}", "org/tiny/sub/m.safetensors": "weights",
		"org/tiny.sha256":     digest + "  sub/m.safetensors\n",
		"org/other/README.md": "other"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-dir", dir, "-token", "hf_x", "-faults", `[{"fault":"status","status":503,"path":"org/other/*","times":1}]`}, w)
		w.CloseWithError(err)
		ended <- err
	}()
	var ready struct{ URL, Storage, Token string }
	if err := json.NewDecoder(r).Decode(&ready); err != nil || ready.Token != "hf_x" {
		t.Fatalf("%+v %v", ready, err)
	}
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get(ready.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if status, body := get("/org/tiny/resolve/main/sub/m.safetensors"); status != 200 || body != "weights" {
		t.Errorf("%d %q", status, body)
	}
	if _, body := get("/api/models/org/tiny?blobs=true"); !strings.Contains(body, digest) {
		t.Errorf("%s", body)
	}
	for _, want := range []int{503, 200} {
		if status, _ := get("/org/other/resolve/main/README.md"); status != want {
			t.Errorf("%d, want %d", status, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"-faults", "{"}, {"-faults", `[{"fault":"x"}]`}, {"-listen", "x"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
