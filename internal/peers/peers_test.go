package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The outputs in testdata were recorded: llm_bench of MNN 3.6.1, llama-bench 0c1e570 and llmexport on the shape llama-135m of internal/synthetic.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		program program
		outputs []string
		want    speed
	}{
		{ours("", ""), []string{"llmexport.json"}, speed{132.83274548716372, 18.86087955607643}},
		{engine("", ""), []string{"llm_bench.json"}, speed{240.78514769488194, 13.739236167165286}},
		{llamaCPP("", ""), []string{"llama-bench-prefill.json", "llama-bench-decode.json"}, speed{129.95002, 2.578775}},
	} {
		t.Run(c.program.name, func(t *testing.T) {
			var got speed
			for _, name := range c.outputs {
				b, err := os.ReadFile(filepath.Join("testdata", name))
				if err != nil {
					t.Fatal(err)
				}
				if err := c.program.parse(b, &got); err != nil {
					t.Fatal(err)
				}
			}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			for _, bad := range []string{"", "error: failed to load model", "[]", "{}", `{"results": [{"type": "prefill", "prompt_len": 512}]}`,
				`[{"n_prompt": 512, "n_gen": 64, "n_depth": 0, "avg_ts": 1}]`} {
				if err := c.program.parse([]byte(bad), &speed{}); err == nil {
					t.Errorf("%q: no error", bad)
				}
			}
		})
	}
}

func TestRunsSayWhatIsMeasured(t *testing.T) {
	for _, c := range []struct {
		program program
		want    string
	}{
		{ours("", ""), "bench M -p 512 -n 64 -t 3 -r 1 --json"},
		{engine("", ""), "-m " + filepath.Join("M", "config.json") + " -a cpu -c 2 -t 3 -p 0 -n 0 -pg 512,64 -rep 1 -j R"},
		{llamaCPP("", ""), "-m M -t 3 -o json -r 1 -p 512 -n 0; -m M -t 3 -o json -r 1 -p 0 -n 64 -d 512"},
	} {
		var lines []string
		for _, args := range c.program.runs("M", "R", 3) {
			lines = append(lines, strings.Join(args, " "))
		}
		if got := strings.Join(lines, "; "); got != c.want {
			t.Errorf("%s: %s, want %s", c.program.name, got, c.want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	tab := newTable([]program{{name: "llmexport"}, {name: "MNN"}, {name: "llama.cpp"}}, []int{1})
	for i, s := range []speed{{100, 10}, {50, 20}, {80, 5}} {
		tab.add(i, 1, s)
		tab.add(i, 1, speed{s.prefill + 2, s.decode})
	}
	const want = `| test, tokens/s | threads | llmexport | MNN | llama.cpp | ratio |
| --- | ---: | ---: | ---: | ---: | ---: |
| prefill 512 | 1 | 101.0 (100.0 to 102.0) | 51.0 (50.0 to 52.0) | 81.0 (80.0 to 82.0) | 1.25 |
| decode 64 behind 512 | 1 | 10.0 (10.0 to 10.0) | 20.0 (20.0 to 20.0) | 5.0 (5.0 to 5.0) | 0.50 |
`
	if got := tab.markdown(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// fake is a program that prints the file it finds next to itself, or fails.
func fake(t *testing.T, script string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the programs are shell scripts")
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o777); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCompare(t *testing.T) {
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	model := t.TempDir()
	programs := []program{
		ours(fake(t, "cat "+data+"/llmexport.json"), model),
		engine(fake(t, `while [ $# -gt 1 ]; do shift; done; echo '| a table |'; cat `+data+`/llm_bench.json > "$1"`), model),
		llamaCPP(fake(t, `case "$*" in *-d*) cat `+data+`/llama-bench-decode.json;; *) cat `+data+`/llama-bench-prefill.json;; esac`), model),
	}
	tab, err := compare(t.Context(), programs, []int{1, 2}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := tab.markdown(); strings.Count(got, "\n") != 6 || !strings.Contains(got, "| decode 64 behind 512 | 2 | 18.9 (18.9 to 18.9) | 13.7 ") {
		t.Errorf("got\n%s", got)
	}
	for _, c := range []struct{ script, want string }{
		{"echo no such model >&2; exit 3", "no such model"},
		{"echo nothing", "nothing"},
		{`echo '{"results": [{}], "prompt": 512, "decode": 64, "depth": 512}'`, "speeds of 0 and 0"},
	} {
		_, err := compare(t.Context(), []program{ours(fake(t, c.script), model)}, []int{1}, 1)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.script, err)
		}
	}
	if _, err := compare(t.Context(), []program{ours(filepath.Join(model, "missing"), model)}, []int{1}, 1); err == nil {
		t.Error("a program that is not there ran")
	}
}

func TestNumbers(t *testing.T) {
	if got, err := numbers("1, 2"); err != nil || len(got) != 2 || got[1] != 2 {
		t.Error(got, err)
	}
	for _, bad := range []string{"", "0", "1,", "a"} {
		if _, err := numbers(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
