//go:build browser

package report

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// problem is a line of testdata/check.mjs.
type problem struct{ Page, View, Kind, Text string }

// check opens pages in Chromium. `make browser` sets the variables.
func check(t *testing.T, files ...string) []problem {
	t.Helper()
	screenshots := os.Getenv("BROWSER_SCREENSHOTS")
	if screenshots == "" {
		screenshots = "-"
	}
	args := append([]string{filepath.Join("testdata", "check.mjs"), os.Getenv("BROWSER_MODULES"), os.Getenv("CHROMIUM"), screenshots}, files...)
	cmd := exec.CommandContext(t.Context(), "node", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	var list []problem
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p problem
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// Pages are accessible by the rules of axe-core, in light and dark mode, on a screen and on a phone; they are not wider than
// the screen, request nothing, and leave the console empty.
func TestBrowser(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for name, data := range pages(t) {
		file := filepath.Join(dir, name+".html")
		if err := os.WriteFile(file, data, 0o666); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	more, err := filepath.Glob(os.Getenv("BROWSER_PAGES"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range check(t, append(files, more...)...) {
		t.Errorf("%s, %s: %s: %s", p.Page, p.View, p.Kind, p.Text)
	}
}

// The check finds what is wrong with a bad page.
func TestBrowserFinds(t *testing.T) {
	kinds := map[string]bool{}
	for _, p := range check(t, filepath.Join("testdata", "bad.html")) {
		kinds[p.Kind] = true
	}
	for _, kind := range []string{"axe", "console", "request", "wide"} {
		if !kinds[kind] {
			t.Errorf("no problem of kind %s", kind)
		}
	}
}
