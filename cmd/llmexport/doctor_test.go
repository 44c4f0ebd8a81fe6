package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/machine"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

// found is the only finding of a check, or a new examination's.
func found(t *testing.T, check func(x *examination)) finding {
	t.Helper()
	var x examination
	check(&x)
	if len(x.Findings) != 1 {
		t.Fatalf("%d findings", len(x.Findings))
	}
	return x.Findings[0]
}

func TestDoctorClock(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]finding{
		2 * time.Second:   {State: fine, Detail: "right to the minute"},
		-59 * time.Second: {State: fine, Detail: "right to the minute"},
		time.Minute:       {State: warning, Detail: "1m0s ahead of the hub's"},
		-5 * time.Minute:  {State: warning, Detail: "5m0s behind the hub's"},
		time.Hour:         {State: problem, Detail: "1h0m0s ahead of the hub's"},
		-24 * time.Hour:   {State: problem, Detail: "24h0m0s behind the hub's"},
	} {
		got := clockFinding(ahead)
		if got.State != want.State || got.Detail != want.Detail || (got.Hint == "") != (got.State == fine) {
			t.Errorf("%v: %+v", ahead, got)
		}
	}
}

func TestDoctorProxies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env  map[string]string
		want finding
	}{
		"none": {nil, finding{State: fine, Detail: "none"}},
		"both": {map[string]string{"https_proxy": "http://p:3128", "NO_PROXY": "a,b"},
			finding{State: fine, Detail: "HTTPS_PROXY=http://p:3128, NO_PROXY=a,b"}},
		"password":       {map[string]string{"ALL_PROXY": "socks5://me:secret@p:1080"}, finding{State: fine, Detail: "ALL_PROXY=socks5://p:1080"}},
		"without scheme": {map[string]string{"HTTP_PROXY": "me:secret@p:3128"}, finding{State: fine, Detail: "HTTP_PROXY=http://p:3128"}},
		"wrong":          {map[string]string{"HTTP_PROXY": "http://a secret:%zz"}, finding{State: problem, Detail: "HTTP_PROXY cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := found(t, func(x *examination) { x.proxies(func(key string) string { return tc.env[key] }) })
			if got.State != tc.want.State || got.Detail != tc.want.Detail || strings.Contains(got.Hint, "secret") {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestDoctorMemory(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	recipe := func(limit recipes.Size) []*stage.Run {
		return []*stage.Run{{Job: pipeline.Job{Recipe: &recipes.Recipe{Name: "x", Limits: recipes.Limits{Memory: limit}}}}}
	}
	for name, tc := range map[string]struct {
		memory machine.Memory
		tasks  []*stage.Run
		want   state
	}{
		"unknown":   {machine.Memory{}, recipe(gib), skipped},
		"no recipe": {machine.Memory{Total: gib}, nil, fine},
		"enough":    {machine.Memory{Total: 4 * gib, Available: 3 * gib}, recipe(2 * gib), fine},
		"used":      {machine.Memory{Total: 4 * gib, Available: gib}, recipe(2 * gib), warning},
		"small":     {machine.Memory{Total: gib, Available: gib}, recipe(2 * gib), problem},
		"one small": {machine.Memory{Total: 4 * gib, Available: gib}, append(recipe(8*gib), recipe(2*gib)...), problem},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := found(t, func(x *examination) { x.memory(tc.memory, tc.tasks) })
			if got.State != tc.want || (got.Hint == "") != (tc.want == fine || tc.want == skipped) {
				t.Errorf("%+v, want %s", got, tc.want)
			}
		})
	}
}

func TestDoctorDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if f := directory("x", filepath.Join(dir, "not", "yet"), "hint"); f.State == problem {
		t.Errorf("a directory that can be created: %+v", f)
	}
	if f := directory("x", filepath.Join(file, "below"), "hint"); f.State != problem || f.Hint != "hint" {
		t.Errorf("below a file: %+v", f)
	}
}

// Hosts are shown, credentials are not.
func TestDoctorCredentials(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	for text, want := range map[string]string{
		`{"auths": {"ghcr.io": {"auth": "c2VjcmV0"}, "a.example": {}}, "credHelpers": {"b.example": "p", "ghcr.io": "p"}}`: "for a.example, ghcr.io, b.example",
		`{"credsStore": "desktop"}`: "from docker-credential-desktop",
		`{}`:                        "",
		`{"auths": secret`:          filepath.Join(dir, "config.json") + " is not valid JSON",
	} {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if got := dockerCredentials(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "none"))
	if got := awsCredentials(); got != "" {
		t.Errorf("no credentials: %q", got)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "config.json"))
	if got := awsCredentials(); got != "from "+filepath.Join(dir, "config.json") {
		t.Errorf("a file: %q", got)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "secret")
	if got := awsCredentials(); got != "from the environment" {
		t.Errorf("the environment: %q", got)
	}
}
