package depcheck

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// machinePath finds paths of the machine that a text was written on. The character before keeps URLs and relative
// paths out.
var machinePath = regexp.MustCompile(`(?:^|[^\w.~:/$}>)-])(/(?:work|root|home|Users)/[\w.][^\s"'` + "`" + `]*|/tmp/bash\w*|[A-Z]:\\Users\\\w+)`)

// stems are what every such path has; looking for them first is much quicker.
var stems = []string{"/work/", "/root/", "/home/", "/Users/", "/tmp/bash", `:\Users\`}

func TestNoMachinePaths(t *testing.T) {
	files := 0
	walk(t, func(name string) {
		b := read(t, name)
		if bytes.IndexByte(b, 0) >= 0 || name == "internal/depcheck/repo_test.go" {
			return
		}
		files++
		if !slices.ContainsFunc(stems, func(s string) bool { return bytes.Contains(b, []byte(s)) }) {
			return
		}
		for i, line := range strings.Split(string(b), "\n") {
			if m := machinePath.FindStringSubmatch(line); m != nil {
				t.Errorf("%s:%d: %q is a path of one machine", name, i+1, m[1])
			}
		}
	})
	if files < 100 {
		t.Errorf("only %d files found: the walk is broken", files)
	}
}

func TestMachinePath(t *testing.T) {
	// A bar stands for a slash: this file, too, is searched for such paths.
	for text, want := range map[string]bool{
		`open("|work|x")`: true, "|root|.cache|go": true, "see |home|me|a": true, "a |tmp|bash_jobs": true, `"C:\Users\me"`: true,
		"https:||host|work|x": false, "..|work|x": false, "runtime|root|x": false, "$HOME|work|x": false, "|tmp|out": false,
	} {
		text = strings.ReplaceAll(text, "|", "/")
		if got := machinePath.MatchString(text); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if want && !slices.ContainsFunc(stems, func(s string) bool { return strings.Contains(text, s) }) {
			t.Errorf("%s: has none of %v", text, stems)
		}
	}
}

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	uses   = regexp.MustCompile(`(?m)^\s*(?:- )?uses: *(\S+)`)
	pinned = regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40}$`)
)

// TestLinks follows every relative link of our documents.
func TestLinks(t *testing.T) {
	links := 0
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".md") || strings.Contains(name, "testdata/") {
			return
		}
		for _, m := range link.FindAllStringSubmatch(string(read(t, name)), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			links++
			target = path.Join(path.Dir(name), target)
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			}
		}
	})
	if links == 0 {
		t.Error("no links found")
	}
}

// TestWorkflows holds actions of others to commits, which cannot be moved.
func TestWorkflows(t *testing.T) {
	found := 0
	walk(t, func(name string) {
		if path.Dir(name) != ".github/workflows" {
			return
		}
		for _, m := range uses.FindAllStringSubmatch(string(read(t, name)), -1) {
			found++
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s is not pinned to a commit", name, m[1])
			}
		}
	})
	if found == 0 {
		t.Error("no workflow uses an action")
	}
}
