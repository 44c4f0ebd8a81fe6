package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
)

// called runs the program in this process.
func called(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(append([]string{"llmexport", "--log-level", "off", "--progress", "none"}, args...), strings.NewReader(stdin), &out, &err)
	return code, out.String(), err.String()
}

// scratch holds what several tests share.
var scratch string

// small makes, once, a package of a few layers that no check has seen.
var small = sync.OnceValues(func() (string, error) {
	source, err := filepath.Abs(filepath.Join(families, "qwen3-tied"))
	if err != nil {
		return "", err
	}
	if scratch, err = os.MkdirTemp("", "llmexport-"); err != nil {
		return "", err
	}
	return stagetest.Export(context.Background(), scratch, source, "quantize: {block: 32}\nverify: {enabled: false}")
})

func smallPackage(t testing.TB) string {
	t.Helper()
	dir, err := small()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// rangeCase is an option of a command, with its arguments, and values that are none.
type rangeCase struct {
	command, option string
	values          []string
}

// Every option of every command that is a number, a size or a time has bounds, and beyond them the exit code is 2.
func TestOptionsOutOfRange(t *testing.T) {
	dir, source := smallPackage(t), filepath.Join(families, "qwen3-tied")
	list := filepath.Join(t.TempDir(), "watch.yaml")
	if err := os.WriteFile(list, []byte("version: 1\ninterval: 15m\nwatch: [{repo: a/b, recipe: qwen3}]\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	sizes := []string{"0", "", "-1", "NaN", "lots", "1e400GiB", "1.5", "99999999TiB"}
	threads := []string{"-1", "1025", "99999999999999999999", "two", "1.5", "NaN", ""}
	cases := []rangeCase{
		{"generate " + dir + " x", "tokens", []string{"0", "-1", "1048577", "x", "1.5"}},
		{"generate " + dir + " x", "temperature", []string{"-0.1", "NaN", "Inf", "-Inf", "1e400", "warm"}},
		{"generate " + dir + " x", "top-k", []string{"-1", "99999999999", "x"}},
		{"generate " + dir + " x", "top-p", []string{"-0.1", "1.1", "NaN", "Inf", "x"}},
		{"generate " + dir + " x", "seed", []string{"-1", "99999999999999999999", "x"}},
		{"generate " + dir + " x", "memory", sizes},
		{"generate " + dir + " x", "threads", threads},
		{"embed " + dir + " x", "memory", sizes},
		{"embed " + dir + " x", "threads", threads},
		{"rerank --query x " + dir + " x", "memory", sizes},
		{"rerank --query x " + dir + " x", "threads", threads},
		{"chat " + dir, "tokens", []string{"-1", "1048577", "x"}},
		{"chat " + dir, "context", []string{"15", "-1", "1048577", "x"}},
		{"chat " + dir, "temperature", []string{"-0.1", "NaN", "warm"}},
		{"chat " + dir, "top-k", []string{"-1", "x"}},
		{"chat " + dir, "top-p", []string{"-0.1", "1.1", "x"}},
		{"chat " + dir, "seed", []string{"-1", "x"}},
		{"chat " + dir, "memory", sizes},
		{"chat " + dir, "threads", threads},
		{"serve " + dir, "parallel", []string{"0", "-1", "65537", "x"}},
		{"serve " + dir, "queue", []string{"-1", "65537", "x"}},
		{"serve " + dir + " --listen 127.0.0.1:0", "context", []string{"15", "-1", "1048577", "x"}},
		{"serve " + dir, "cache-memory", sizes},
		{"serve " + dir, "max-body", sizes},
		{"serve " + dir, "timeout", []string{"0", "-1s", "999ms", "x"}},
		{"serve " + dir, "grace", []string{"-1s", "x"}},
		{"serve " + dir, "listen", []string{"x", "", "0.0.0.0:0", ":8080", "example.org:1"}},
		{"serve " + dir, "allow-origin", []string{"x", "*", "ftp://a", "https://a/", "https://"}},
		{"serve " + dir, "token", []string{"", " "}},
		{"serve " + dir, "memory", sizes},
		{"serve " + dir, "threads", threads},
		{"bench " + dir, "prompt", []string{"-1", "1048577", "x"}},
		{"bench " + dir, "decode", []string{"-1", "1048577", "x"}},
		{"bench " + dir, "depth", []string{"-1", "1048577", "x"}},
		{"bench " + dir, "repetitions", []string{"0", "-1", "65537", "x"}},
		{"bench " + dir, "threads", []string{"0", "-1", "1025", "1,,2", "1,0", "x"}},
		{"bench " + dir, "memory", sizes},
		{"verify " + dir, "window", []string{"7", "0", "-1", "1048577", "x"}},
		{"verify " + dir, "windows", []string{"-1", "1048577", "x"}},
		{"verify " + dir, "memory", sizes},
		{"verify " + dir, "threads", threads},
		{"compare " + dir + " --source " + source, "window", []string{"7", "-1", "1048577", "x"}},
		{"compare " + dir + " --source " + source, "windows", []string{"-1", "1048577", "x"}},
		{"compare " + dir + " --source " + source, "score-from", []string{"-1", "511", "x"}},
		{"compare " + dir + " --source " + source + " --svg x.svg", "point", []string{"a,0,1", "a,-1,1", "a,1,NaN", "a,1,-1", "a,1,Inf", "a,x,1", ",1,1"}},
		{"compare " + dir + " --source " + source, "memory", sizes},
		{"compare " + dir + " --source " + source, "threads", threads},
		{"pull " + dir + " out", "connections", []string{"0", "-1", "65", "x"}},
		{"pull " + dir + " out", "files", []string{"0", "-1", "65", "x"}},
		{"pull " + dir + " out", "memory", sizes},
		{"pull " + dir + " out", "threads", threads},
		{"pull " + dir + " out", "digest", []string{"sha256:0", "x"}},
		{"cache gc", "keep", []string{"", "-1", "NaN", "lots", "1.5"}},
		{"reproduce " + dir + " --source " + source, "memory", sizes},
		{"reproduce " + dir + " --source " + source, "threads", threads},
		{"run qwen3", "memory", sizes},
		{"stage qwen3", "memory", sizes},
		{"stage qwen3", "threads", threads},
		{"run qwen3", "threads", threads},
		{"plan qwen3", "memory", sizes},
		{"plan qwen3", "threads", threads},
		{"validate qwen3", "set", []string{
			"verify.kl.max=.nan", "verify.kl.max=NaN", "verify.kl.max=.inf", "verify.kl.max=-1", "verify.layers.max=.nan", "verify.perplexity.max_ratio=0",
			"verify.perplexity.max_ratio=.nan", "verify.perplexity.max_source=1", "verify.perplexity.window=7", "verify.perplexity.windows=-1",
			"verify.perplexity.decode=-1",
			"verify.tokenizer.max_plain=1.1", "verify.tokenizer.max_hard=.nan", "limits.threads=1025", "limits.memory=0",
		}},
		{"watch --dry-run " + list, "memory", sizes},
		{"watch --dry-run " + list, "threads", threads},
	}
	for _, c := range cases {
		for _, v := range c.values {
			args := append(strings.Fields(c.command), "--"+c.option+"="+v)
			if code, stdout, stderr := called("", args...); code != exit.Usage || stdout != "" || !strings.HasPrefix(stderr, "llmexport: ") {
				t.Errorf("%s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
			}
		}
	}
	if _, err := os.Stat("out"); err == nil {
		t.Error("something was pulled")
	}

	// No option with a number is missing above; those of recipes are one for all commands that have them.
	var walk func(path string, list []*cli.Command)
	walk = func(path string, list []*cli.Command) {
		for _, cmd := range list {
			walk(path+cmd.Name+" ", cmd.Subcommands)
			for _, f := range cmd.Flags {
				name := f.Names()[0]
				switch f.(type) {
				case *cli.IntFlag, *cli.Float64Flag, *cli.Uint64Flag:
				default:
					if !slices.Contains([]string{"memory", "threads", "keep", "digest", "point"}, name) {
						continue
					}
				}
				if !slices.ContainsFunc(cases, func(c rangeCase) bool {
					return strings.HasPrefix(c.command+" ", path+cmd.Name+" ") && c.option == name
				}) {
					t.Errorf("there is no case for %s%s --%s", path, cmd.Name, name)
				}
			}
		}
	}
	walk("", (&tool{}).app().Commands)
}
