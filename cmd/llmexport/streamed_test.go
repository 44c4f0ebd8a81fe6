package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A package whose source was not kept is made again in the same way, from the hub and from a copy of the source; what
// does not go with it is a bad recipe.
func TestStreamed(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	source := filepath.Join(families, "qwen3-untied")
	h := serveHub(t, source, nil)
	dir := t.TempDir()
	recipe, out := filepath.Join(dir, "recipe.yaml"), filepath.Join(dir, "dist", "tiny")
	text := "version: 1\nname: tiny\nmodel: {repo: org/model}\nfetch: {keep: false}\nquantize: {bits: 8, block: auto}\n" +
		"verify: {perplexity: {window: 32, windows: 1, decode: 4, max_source: 5000}}\npublish: [{dir: dist/tiny}]\n"
	if err := os.WriteFile(recipe, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	llmexport := func(want int, says string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := run(append([]string{"llmexport"}, args...), strings.NewReader(""), &stdout, &stderr)
		if all := stdout.String() + stderr.String(); code != want || !strings.Contains(all, says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s", args, code, want, says, all)
		}
	}
	llmexport(2, "quantize.method: methods that watch the model", "run", recipe, "--set", "quantize.method=gptq")
	if n := len(h.Requests("*", "*")); n != 0 {
		t.Errorf("%d requests for a bad recipe", n)
	}
	llmexport(0, "published: ", "run", recipe)
	if b, err := os.ReadFile(filepath.Join(out, "manifest.json")); err != nil ||
		!bytes.Contains(b, []byte("as their methods promise, compared while they were written")) {
		t.Errorf("the manifest does not say that weights were compared: %v", err)
	}
	llmexport(0, "equal: ", "reproduce", out, "--tmp", t.TempDir())
	llmexport(0, "equal: ", "reproduce", out, "--tmp", t.TempDir(), "--source", source)
	llmexport(0, "", "verify", out, "--source", source, "--window", "32", "--windows", "1")
	if names, _ := filepath.Glob(filepath.Join(os.Getenv("HF_HUB_CACHE"), "*", "snapshots", "*", "*.safetensors")); len(names) != 0 {
		t.Errorf("kept: %v", names)
	}
}
