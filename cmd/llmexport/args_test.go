package main

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReorder(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"in order", "run --json r.yaml", "run --json -- r.yaml"},
		{"after the argument", "run r.yaml --json", "run --json -- r.yaml"},
		{"with a value", "run r.yaml --set a=b --memory 1GiB", "run --set a=b --memory 1GiB -- r.yaml"},
		{"with an attached value", "run r.yaml --memory=1GiB x", "run --memory=1GiB -- r.yaml x"},
		{"of the program", "run r.yaml --log-level off", "--log-level off run -- r.yaml"},
		{"of the program, before", "--log-level=off run r.yaml", "--log-level=off run -- r.yaml"},
		{"a value like a flag", "verify d --window -5", "verify --window -5 -- d"},
		{"a value like a command", "run --variant plan r.yaml", "run --variant plan -- r.yaml"},
		{"short", "generate p x -n 3", "generate -n 3 -- p x"},
		{"double dash", "generate p -n 3 -- --json", "generate -n 3 -- p --json"},
		{"nested", "cache gc r.yaml --keep 0", "cache gc --keep 0 -- r.yaml"},
		{"argument like a command", "run run plan", "run -- run plan"},
		{"help", "run r.yaml --help", "run --help -- r.yaml"},
		{"help of the program", "--help", "--help"},
		{"version", "-v", "-v"},
		{"unknown flag", "run r.yaml --nope", "run --nope -- r.yaml"},
		{"unknown command", "rnu x --json", "--json -- rnu x"},
		{"value missing", "run r.yaml --memory", "run --memory"},
		{"value of the program missing", "run r.yaml --log-level", "--log-level"},
		{"single dash is an argument", "diff - b", "diff -- - b"},
		{"completion", "run r.yaml --generate-bash-completion", "run r.yaml --generate-bash-completion"},
	} {
		t.Run(c.name, func(t *testing.T) {
			app := (&tool{stdout: io.Discard, stderr: io.Discard}).app()
			got := reorder(app, append([]string{"llmexport"}, strings.Fields(c.in)...))
			if d := cmp.Diff(append([]string{"llmexport"}, strings.Fields(c.want)...), got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
	if got := reorder((&tool{}).app(), nil); got != nil {
		t.Errorf("no arguments at all became %q", got)
	}
}
