package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/work"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bad := file("bad.yaml", "version: 1\nname: a\nstore: /s\nparalel: 3\nrepositories: [{recipe: demo}]\n")
	for _, tc := range []struct {
		args string
		code int
		want string // in standard error, or output for code 0
	}{
		{"", 0, "worker"},
		{"help", 0, "release"},
		{"release", 0, "rollback"},
		{"release schema", 0, `"title": "llmexport fleet"`},
		{"work", 2, `unknown command "work"`},
		{"release strat", 2, `unknown command release "strat"`},
		{"worker --quues x", 2, "flag provided but not defined"},
		{"worker extra", 2, "got 1 arguments"},
		{"worker", 2, "--store is missing"},
		{"worker --store x --queues Disk", 2, `"Disk" cannot name a queue`},
		{"worker --store x --memory lots", 2, "--memory must be a size"},
		{"worker --store x --threads -1", 2, "--threads must be 0 or more"},
		{"worker --store ftp://x --cache " + dir, 2, "is not a shared store"},
		{"--log xml worker", 2, "--log must be console or json"},
		{"release plan", 2, "plan needs"},
		{"release plan a b", 2, "got 2 arguments"},
		{"release plan " + filepath.Join(dir, "none.yaml"), 1, "no such file"},
		{"release plan " + bad, 2, "bad.yaml:4:1: paralel: unknown key; did you mean parallel?"},
		{"release start " + bad + " --wait", 2, "flags come before arguments: --wait"},
		{"release status --tls-cert x a", 2, "--tls-cert and --tls-key go together"},
	} {
		var out, err bytes.Buffer
		code := run(append([]string{"llmexport-worker"}, strings.Fields(tc.args)...), &out, &err)
		text := err.String()
		if tc.code == 0 {
			text = out.String()
		}
		if code != tc.code || !strings.Contains(text, tc.want) {
			t.Errorf("%s: code %d, want %d: %s%s, want %s", tc.args, code, tc.code, out.String(), err.String(), tc.want)
		}
	}
}

func TestLanes(t *testing.T) {
	t.Parallel()
	got, err := parseLanes("disk=4, compute,verify-arm64", "disk=0.5")
	want := []work.Lane{{Name: "disk", Parallel: 4, Rate: .5}, {Name: "compute", Parallel: 1}, {Name: "verify-arm64", Parallel: 1}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, tc := range [][2]string{
		{"", ""}, {"disk,disk", ""}, {"disk=0", ""}, {"disk=x", ""}, {"disk=", ""}, {"a b", ""}, {"disk", "verify=1"}, {"disk", "disk"},
		{"disk", "disk=0"}, {"disk", "disk=NaN"}, {"disk=2000", ""},
	} {
		if got, err := parseLanes(tc[0], tc[1]); err == nil {
			t.Errorf("%v gives %v", tc, got)
		}
	}
}

// FuzzLanes: what is read has names of queues and positive numbers.
func FuzzLanes(f *testing.F) {
	f.Add("disk=4,compute", "disk=0.5")
	f.Fuzz(func(t *testing.T, queues, rates string) {
		lanes, err := parseLanes(queues, rates)
		if err != nil && lanes != nil {
			t.Fatal(lanes, err)
		}
		for _, l := range lanes {
			if !laneRE.MatchString(l.Name) || l.Parallel < 1 || !(l.Rate >= 0) {
				t.Fatalf("%+v", l)
			}
		}
	})
}
