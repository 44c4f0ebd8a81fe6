//go:build page

package serve_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	for _, c := range []struct {
		token, shots, family, attach string
		files, shown                 []string
	}{
		{shots: shots}, {token: "secret", shots: shots},
		{
			shots: filepath.Join(shots, "pictures"), family: "llava", attach: "Add pictures",
			files: []string{"PICTURE=" + pictureFiles + "rgb.jpg", "LARGE=" + drawnPNG(t, 3000, 1500)}, shown: []string{"rgb.jpg 23 x 17", "drawn.png 2048 x 1024"},
		},
		{
			shots: filepath.Join(shots, "clips"), family: "qwen2_audio", attach: "Add clips",
			files: []string{"CLIP=" + clipFiles + "44100.wav"}, shown: []string{"44100.wav 0.05 s"},
		},
	} {
		var s *served
		cmd := exec.CommandContext(t.Context(), "node", "testdata/page.mjs")
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
		if c.family != "" {
			dir := shown(t, t.TempDir(), c.family)
			_, set := withReader(t, dir)
			s = newServerOf(t, dir, func(o *serve.Options) { set(o); o.Context, o.MaxBody = 512, 16<<20 })
			cmd.Env = append(cmd.Env, c.files...)
		} else {
			s = newServer(t, func(o *serve.Options) { o.Token, o.Context = c.token, 4096 })
		}
		if err := os.MkdirAll(c.shots, 0o777); err != nil {
			t.Fatal(err)
		}
		cmd.Args = append(cmd.Args, s.url+"/", c.token, c.shots)
		out, err := cmd.Output()
		if e, ok := err.(*exec.ExitError); ok {
			t.Fatalf("%v: %s", err, e.Stderr)
		} else if err != nil {
			t.Fatal(err)
		}
		var found struct {
			Console, Requests, Violations, Shown []string
			Answers                              [][]string
			Status, Attach                       string
			Rules                                int
			Wide                                 bool
		}
		if err := json.Unmarshal(out, &found); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, line := range found.Console {
			// The browser itself reports the 401 by which the page learns that it needs a token.
			if c.token == "" || !strings.Contains(line, "status of 401") {
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
		if found.Attach != c.attach || !slices.Equal(found.Shown, c.shown) {
			t.Errorf("the button is %q, shown are %q, want %q", found.Attach, found.Shown, c.shown)
		}
		if len(found.Answers) != 3 {
			t.Errorf("%d views", len(found.Answers))
		}
	}
}

// drawnPNG writes a picture that is larger than the page sends.
func drawnPNG(t *testing.T, width, height int) string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(grayPNG(t, width, height), "data:image/png;base64,"))
	file := filepath.Join(t.TempDir(), "drawn.png")
	if err == nil {
		err = os.WriteFile(file, data, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}
