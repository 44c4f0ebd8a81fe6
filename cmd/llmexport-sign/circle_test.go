package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecipeSigns is the whole way of a signature: a recipe signs, the package is published and pulled, and verified by the
// public key and by no other.
func TestRecipeSigns(t *testing.T) {
	if testing.Short() {
		t.Skip("builds both programs")
	}
	work, bin := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	model, err := filepath.Abs("../../pipeline/arch/testdata/qwen3-tied")
	if err != nil {
		t.Fatal(err)
	}
	run := func(dir string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(dir string, args ...string) string {
		t.Helper()
		out, err := run(dir, args...)
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return out
	}
	must("../..", "go", "build", "-o", bin, "./cmd/llmexport")
	must(".", "go", "build", "-o", bin, ".")
	must(work, "llmexport-sign", "keygen", "release")
	must(work, "llmexport-sign", "keygen", "other")
	write(t, filepath.Join(work, "recipe.yaml"), "version: 1\nname: tiny\nmodel: {path: '"+filepath.ToSlash(model)+"'}\nquantize: {bits: 8, block: 32}\n"+
		"verify: {enabled: false}\nsign: {key: release.key}\npublish: [{dir: 'rel/{name}', channel: stable}]\n")
	must(work, "llmexport", "run", "recipe.yaml")
	if out := must(work, "llmexport", "run", "recipe.yaml"); !strings.Contains(out, "unchanged: ") {
		t.Errorf("a second run: %s", out)
	}
	must(work, "llmexport", "pull", "rel@stable", "got")
	if out := must(work, "llmexport-sign", "verify", "got", "--key", "release.pub"); !strings.Contains(out, "verified: tiny") {
		t.Error(out)
	}
	if out, err := run(work, "llmexport-sign", "verify", "got", "--key", "other.pub"); err == nil {
		t.Errorf("another key: %s", out)
	}
	out, err := run(work, "llmexport", "run", "recipe.yaml", "--set", "sign.public=other.pub", "--set", "publish[0].dir=none/{name}")
	if err == nil || !strings.Contains(out, "the signature is not usable, so nothing was published") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(work, "none", "tiny")); err == nil {
		t.Error("a package with a signature of another key was published")
	}
}
