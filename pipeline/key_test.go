package pipeline

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestKey(t *testing.T) {
	a, err := Key("stage", 1, "x")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Key("stage", 1, "x")
	if a != b || len(a) != 24 {
		t.Errorf("keys %s, %s", a, b)
	}
	for _, parts := range [][]any{{1, "y"}, {2, "x"}, {1}, {"1", "x"}} {
		if k, _ := Key("stage", parts...); k == a {
			t.Errorf("%v has the key of another input", parts)
		}
	}
	if k, _ := Key("other", 1, "x"); k == a {
		t.Error("two stages share a key")
	}
}

func TestVersionOf(t *testing.T) {
	const other = "example.com/other"
	git := func(path, modified string, more ...debug.BuildSetting) debug.BuildInfo {
		return debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Path: path, Version: "(devel)"}, Settings: append([]debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: modified},
		}, more...)}
	}
	needs := func(i debug.BuildInfo, replace *debug.Module, version, sum string) debug.BuildInfo {
		i.Deps = []*debug.Module{{Path: "example.com/x", Version: "v9.0.0", Sum: "h1:x"}, {Path: module, Version: version, Sum: sum, Replace: replace}}
		return i
	}
	local := &debug.Module{Path: "../..", Version: "(devel)"}
	for _, c := range []struct {
		name  string
		info  debug.BuildInfo
		stamp string
		want  string
	}{
		{"go install", debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Path: module, Version: "v1.2.3", Sum: "h1:s"}}, "", "release-v1.2.3-h1:s-go1"},
		{"a dependency", needs(git(other, "true"), nil, "v1.2.3", "h1:s"), "", "release-v1.2.3-h1:s-go1"},
		{"a fork", needs(git(other, "false"), &debug.Module{Path: "example.com/fork", Version: "v2.0.0", Sum: "h1:f"}, "v1.2.3",
			"h1:s"), "", "release-v2.0.0-h1:f-go1"},
		{"a clean tree", git(module, "false"), "s", "revision-abc-go1"},
		{"another program of the repository", needs(git(module+"/cmd/worker", "false"), local, "v0.0.0", ""), "", "revision-abc-go1"},
		{"another copy of the sources", needs(git(module+"/cmd/worker", "false"), &debug.Module{Path: "../../../copy"}, "v0.0.0", ""), "", ""},
		{"a workspace", needs(git(module+"/cmd/worker", "false"), nil, "(devel)", ""), "", ""},
		{"a repository of others", needs(git(other, "false"), local, "v0.0.0", ""), "", ""},
		{"a similar name", git(module+"2", "false"), "", ""},
		{"tags", git(module, "false", debug.BuildSetting{Key: "-tags", Value: "x"}), "", "revision-abc-go1-x"},
		{"another processor", git(module, "false", debug.BuildSetting{Key: "GOARCH", Value: "arm64"}), "", "revision-abc-go1"},
		{"a modified tree", git(module, "true"), "", ""},
		{"a stamped modified tree", git(module, "true"), "s", "sources-s-go1"},
		{"no version control", debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Path: module, Version: "(devel)"}}, "s", "sources-s-go1"},
	} {
		if got := versionOf(&c.info, c.stamp); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if v, err := Code(); err != nil || !strings.HasPrefix(v, "dev-") { // this test is an unstamped build
		t.Errorf("%q, %v", v, err)
	}
}
