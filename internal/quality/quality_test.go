package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

func TestPackages(t *testing.T) {
	for _, c := range []struct {
		budgets, specs []string
		names, err     string
	}{
		{[]string{"3.6MB", "4194304"}, []string{"w4-b64-asym", "w3-brow-sym", "f16"}, "budget-3600000 budget-4194304 w4-b64-asym w3-brow-sym f16", ""},
		{nil, nil, "", "give -budget or -spec"},
		{nil, []string{"w4-b64-asym", "w4-b64-asym"}, "", "wanted twice"},
		{[]string{"much"}, nil, "", "-budget much"},
		{nil, []string{"w9-b64-asym"}, "", "-spec w9-b64-asym"},
	} {
		list, err := packages(c.budgets, c.specs)
		var names []string
		for _, w := range list {
			names = append(names, w.name)
		}
		if got := strings.Join(names, " "); got != c.names || (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%v %v: %q, %v", c.budgets, c.specs, got, err)
		}
	}
}

// TestRecipes: what is written is a valid recipe with the options of the package.
func TestRecipes(t *testing.T) {
	s := &study{checkpoint: t.TempDir(), out: t.TempDir()}
	list, err := packages([]string{"4MB"}, []string{"w3-brow-sym", "w8-b32-asym-s32", "f16"})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		path, err := s.writeRecipe(w)
		if err != nil {
			t.Fatal(err)
		}
		r, err := recipes.LoadFile(path, stage.Sections(), "quantize.method=gptq")
		if err != nil {
			t.Fatal(err)
		}
		run, err := stage.New(r, pipeline.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		q := &run.Quantize
		switch w.name {
		case "budget-4000000":
			if q.Budget == nil || q.Budget.Bytes == nil || *q.Budget.Bytes != 4_000_000 {
				t.Errorf("%s: %+v", w.name, q.Budget)
			}
		case "w3-brow-sym":
			if q.Bits != 3 || q.Block != (stage.Block{}) || !q.Symmetric {
				t.Errorf("%s: %+v", w.name, q)
			}
		case "w8-b32-asym-s32":
			if q.Bits != 8 || q.Block.Cols != 32 || q.Symmetric || q.Scale != "fp32" {
				t.Errorf("%s: %+v", w.name, q)
			}
		case "f16":
			if q.Bits != 16 {
				t.Errorf("%s: %+v", w.name, q)
			}
		default:
			t.Errorf("unexpected %s", w.name)
		}
	}
}

// fake is a program that appends its arguments to a file next to it and then runs a script.
func fake(t *testing.T, script string) (path, log string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the programs are shell scripts")
	}
	dir := t.TempDir()
	path, log = filepath.Join(dir, "program"), filepath.Join(dir, "log")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"$@\" >> '"+log+"'\n"+script), 0o777); err != nil {
		t.Fatal(err)
	}
	return path, log
}

const compared = `case $1 in compare) echo '{"packages": [
 {"name": "w3-b64-asym", "dir": "D3", "bytes": 3888888, "kl": 0.25, "kl_float": 0.125, "perplexity": 60.5, "front": true},
 {"name": "w4-b64-asym", "dir": "D4", "bytes": 14888888, "kl": null, "kl_float": null, "perplexity": null}]}';; esac`

func TestRun(t *testing.T) {
	llmexport, runs := fake(t, compared)
	judge, asked := fake(t, `case "$*" in *"--memory high"*) echo the engine speaks; echo '{"kld": 0.125, "ppl": 61}';; *) echo '{"kld": 0.25}';; esac`)
	s := &study{
		llmexport: llmexport, checkpoint: "C", text: "T", out: t.TempDir(), method: "[awq, search]", svg: "S", set: []string{"calibrate.tokens=2048"},
		points: []string{"Q4,5,0.5"}, judge: []string{judge, "-q"}, windows: 8, window: 128, scoreFrom: 64,
	}
	var err error
	if s.packages, err = packages(nil, []string{"w4-b64-asym", "w3-b64-asym"}); err != nil {
		t.Fatal(err)
	}
	rows, err := s.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const want = `| package | bytes | KL, float | KL, int8 | judge's KL, high | judge's KL, low | perplexity |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| **w3-b64-asym** | 3,888,888 | 0.12500 | 0.25000 | 0.12500 | 0.25000 | 60.5000 |
| w4-b64-asym | 14,888,888 | not finite | not finite | 0.12500 | 0.25000 | not finite |
`
	if got := markdown(rows, true); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, c := range []struct{ log, want string }{
		{runs, "run OUT/recipes/w4-b64-asym.yaml --cache OUT/cache --set quantize.method=[awq, search] --set calibrate.tokens=2048\n" +
			"run OUT/recipes/w3-b64-asym.yaml --cache OUT/cache --set quantize.method=[awq, search] --set calibrate.tokens=2048\n" +
			"compare --source C --json --windows 8 --window 128 --score-from 64 --text T --svg S --point Q4,5,0.5 OUT/packages/w4-b64-asym OUT/packages/w3-b64-asym\n"},
		{asked, "-q D3 C --windows 8 --window 128 --score-from 64 --text T --memory high --json\n" +
			"-q D3 C --windows 8 --window 128 --score-from 64 --text T --memory low --json\n" +
			"-q D4 C --windows 8 --window 128 --score-from 64 --text T --memory high --json\n" +
			"-q D4 C --windows 8 --window 128 --score-from 64 --text T --memory low --json\n"},
	} {
		b, err := os.ReadFile(c.log)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(string(b), s.out, "OUT"); got != c.want {
			t.Errorf("got\n%swant\n%s", got, c.want)
		}
	}
}

func TestRunFails(t *testing.T) {
	for _, c := range []struct{ llmexport, judge, want string }{
		{"echo no such checkpoint >&2; exit 4", "", "no such checkpoint"},
		{"echo nothing", "", "llmexport compare: "},
		{`echo '{"packages": []}'`, "", "0 packages of 1"},
		{`echo '{"packages": [{"name": "P", "dir": "D"}]}'`, "echo no engine; exit 1", "no engine"},
		{`echo '{"packages": [{"name": "P", "dir": "D"}]}'`, `echo '{"ppl": 5}'`, "printed no"},
	} {
		llmexport, _ := fake(t, c.llmexport)
		s := &study{llmexport: llmexport, checkpoint: "C", text: "T", out: t.TempDir(), packages: []wanted{{"w4", nil}}}
		if c.judge != "" {
			judge, _ := fake(t, c.judge)
			s.judge = []string{judge}
		}
		if _, err := s.run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.llmexport, err)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		study study
		want  string
	}{
		{study{llmexport: "L", checkpoint: "C", out: "O"}, ""},
		{study{checkpoint: "C", out: "O"}, "give -llmexport"},
		{study{llmexport: "L", checkpoint: "C", out: "O", judge: []string{"J"}}, "-judge needs"},
		{study{llmexport: "L", checkpoint: "C", out: "O", points: []string{"P,1,1"}}, "-svg"},
	} {
		if err := c.study.check(); (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c.study, err)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{7: "7", 123: "123", 1234: "1,234", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
