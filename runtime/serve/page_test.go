//go:build page

package serve_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/serve"
)

// TestPage uses the page in headless Chromium: light, dark and on a phone. make page installs what it needs into .venv/page, unless PAGE_MODULES names
// a folder of modules; LLMEXPORT_SHOTS names a
// folder for the screenshots.
func TestPage(t *testing.T) {
	modules := os.Getenv("PAGE_MODULES")
	if modules == "" {
		var err error
		if modules, err = filepath.Abs("../../.venv/page/node_modules"); err != nil {
			t.Fatal(err)
		}
	}
	shots := os.Getenv("LLMEXPORT_SHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	for _, token := range []string{"", "secret"} {
		s := newServer(t, func(o *serve.Options) { o.Token, o.Context = token, 4096 })
		cmd := exec.CommandContext(t.Context(), "node", "testdata/page.mjs", s.url+"/", token, shots)
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
		out, err := cmd.Output()
		if e, ok := err.(*exec.ExitError); ok {
			t.Fatalf("%v: %s", err, e.Stderr)
		} else if err != nil {
			t.Fatal(err)
		}
		var found struct {
			Console, Requests, Violations []string
			Answers                       [][]string
			Status                        string
			Rules                         int
			Wide                          bool
		}
		if err := json.Unmarshal(out, &found); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, line := range found.Console {
			// The browser itself reports the 401 by which the page learns that it needs a token.
			if token == "" || !strings.Contains(line, "status of 401") {
				t.Errorf("console: %s", line)
			}
		}
		if len(found.Requests) > 0 || len(found.Violations) > 0 || found.Rules < 20 || found.Wide {
			t.Errorf("requests elsewhere %q, violations %q, %d rules passed, wider than the screen: %v", found.Requests, found.Violations, found.Rules, found.Wide)
		}
		for i, a := range found.Answers {
			if len(a) != 4 || a[0] != "Who comes here?" || a[1] == "" || a[2] != "And what news?" || a[3] == "" || a[1] != found.Answers[0][1] {
				t.Errorf("answers of view %d: %q", i, a)
			}
		}
		if len(found.Answers) != 3 {
			t.Errorf("%d views", len(found.Answers))
		}
	}
}
