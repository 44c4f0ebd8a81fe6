//go:build unix

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The step of action.yml that runs a recipe passes its inputs on, keeps report and log, and writes outputs and summary.
func TestActionRun(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}
	const report = `{"packages": [{"name": "x-int4", "report": {"checks": [{"name": "kl", "outcome": "failed", "value": 0.25123456},
		{"name": "graph", "outcome": "passed", "value": 1e-12}, {"name": "layout", "outcome": "passed", "detail": "6 files"}]},
		"error": "kl: too large", "published": [{"ref": "dist/x", "bytes": 12, "digest": "sha256:00"}]}]}`
	for name, tc := range map[string]struct {
		program string
		code    string
		summary []string
	}{
		"done": {"echo '" + report + "'", "0", []string{"Exported and verified.", "| kl | failed | 0.2512 |", "| graph | passed | < 0.0001 |",
			"| layout | passed | 6 files |", "kl: too large", "Published: `dist/x`, 12 bytes, `sha256:00`"}},
		"unverified": {"echo '" + report + "'; echo why >&2; exit 3", "3", []string{"Verification failed; nothing was published.", "#### x-int4", "why"}},
		"bad recipe": {"echo 'llmexport: recipe.yaml' >&2; exit 2", "2", []string{"The recipe or an argument is wrong.", "llmexport: recipe.yaml"}},
		"killed":     {"exit 137", "137", []string{"failed with exit code 137"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			add(t, dir, "llmexport", `printf '%s\n' "$@" > "$RUNNER_TEMP/args"; echo "$HF_TOKEN" > "$RUNNER_TEMP/token"; `+tc.program)
			script, err := filepath.Abs(filepath.Join(root, ".github", "action", "run.sh"))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "bash", script)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "RUNNER_TEMP="+dir, "GITHUB_OUTPUT="+filepath.Join(dir, "output"),
				"GITHUB_STEP_SUMMARY="+filepath.Join(dir, "summary"), "RECIPE=a recipe.yaml", "ARGS=--set\npublish=[{dir: a b}]\n", "CACHE=/cache", "TOKEN=secret")
			b, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			for file, want := range map[string]string{
				"args":   "--progress\nnone\nrun\na recipe.yaml\n--json\n--set\npublish=[{dir: a b}]\n--cache\n/cache\n",
				"token":  "secret\n",
				"output": "exit-code=" + tc.code + "\nreport=" + filepath.Join(dir, "llmexport-report", "report.json") + "\n",
			} {
				if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
					t.Errorf("%s: %q, want %q, %v", file, got, want, err)
				}
			}
			summary, err := os.ReadFile(filepath.Join(dir, "summary"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.summary {
				if !strings.Contains(string(summary), want) {
					t.Errorf("no %q in the summary:\n%s", want, summary)
				}
			}
			if strings.Contains(string(summary)+string(b), "secret") {
				t.Error("the token is shown")
			}
		})
	}
}

// The page lists the inputs of the action, and its version is the default.
func TestActionInputs(t *testing.T) {
	t.Parallel()
	action, err := os.ReadFile(filepath.Join(root, "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	inputs, _, _ := strings.Cut(string(action), "\noutputs:")
	names := regexp.MustCompile(`(?m)^  ([a-z-]+):$`).FindAllStringSubmatch(inputs, -1)
	if len(names) < 5 {
		t.Fatalf("inputs %q", names)
	}
	for _, n := range names {
		if !strings.Contains(string(page), "\n| `"+n[1]+"` |") {
			t.Errorf("docs/install.md lacks the input %s", n[1])
		}
	}
	for _, use := range regexp.MustCompile(`uses: (\S+)`).FindAllStringSubmatch(string(action), -1) {
		if !regexp.MustCompile(`@[0-9a-f]{40}$`).MatchString(use[1]) {
			t.Errorf("%s is not pinned to a commit", use[1])
		}
	}
}
