package main

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/bench"
)

func (t *tool) benchCommand() *cli.Command {
	return &cli.Command{
		Name:      "bench",
		Usage:     "measure how fast a package runs",
		ArgsUsage: "PACKAGE",
		Description: "Measures the runtime of this program: loading until the first logits, prefill of a prompt, and decode, each as the\n" +
			"median of several repetitions. Prefill is compared with the machine's peak arithmetic rate, decode with its peak\n" +
			"memory bandwidth; both peaks are measured in the same run. docs/performance.md explains the numbers.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "prompt", Aliases: []string{"p"}, Value: 512, Usage: "prefill `N` tokens; 0 skips prefill"},
			&cli.IntFlag{Name: "decode", Aliases: []string{"n"}, Value: 128, Usage: "decode `N` tokens; 0 skips decode"},
			&cli.IntFlag{Name: "depth", Aliases: []string{"d"}, DefaultText: "as many as -p", Usage: "decode after a context of `N` tokens"},
			&cli.StringFlag{Name: "threads", Aliases: []string{"t"}, DefaultText: "all cores", Usage: "`LIST` of thread counts to measure, for example 1,2"},
			&cli.IntFlag{Name: "repetitions", Aliases: []string{"r"}, Value: 10, Usage: "measure `N` times, after one warm-up run"},
			modeFlag(),
			&cli.StringFlag{Name: "memory", Value: recipes.DefaultLimits().Memory.String(), Usage: "`SIZE` of memory for expanded weights"},
			jsonFlag(),
		},
		CustomHelpTemplate: help(
			"llmexport bench dist/qwen3-0.6b-int4",
			"llmexport bench dist/qwen3-0.6b-int4 -p 512 -n 64 -t 1,2,4 --json",
		),
		Action: t.bench,
	}
}

func (t *tool) bench(c *cli.Context) error {
	args, err := arguments(c, "PACKAGE")
	if err != nil {
		return err
	}
	o := bench.Options{
		Prompt: c.Int("prompt"), Decode: c.Int("decode"), Depth: c.Int("prompt"), Repetitions: c.Int("repetitions"),
		Progress: func(threads, done, total int) {
			t.progress.report("bench", fmt.Sprintf("%d threads", threads), int64(done), int64(total))
		},
	}
	if c.IsSet("depth") {
		o.Depth = c.Int("depth")
	}
	if o.Threads, err = threadList(c.String("threads")); err != nil {
		return err
	}
	memory, err := memoryOption(c)
	if err != nil {
		return err
	}
	o.Session = runtime.Options{CacheBytes: memory}
	if o.Session.Mode, err = modeOption(c); err != nil {
		return err
	}
	m, err := readManifest(args[0])
	if err != nil {
		return err
	}
	r, err := bench.Run(c.Context, args[0], cpu.Backend{}, o)
	t.progress.stop()
	if bad := (*bench.OptionError)(nil); errors.As(err, &bad) {
		return exit.Usagef("%v", bad)
	}
	if err != nil {
		return explained(c.Context, args[0], err)
	}
	if m != nil {
		r.Package.Digest = m.Digest
	}
	if c.Bool("json") {
		return t.printJSON(struct {
			Version string `json:"version"`
			*bench.Report
		}{stage.Version, r})
	}
	return writeBench(t.stdout, r)
}

// threadList parses a list of thread counts. An empty one means all cores.
func threadList(text string) ([]int, error) {
	if text == "" {
		return []int{goruntime.GOMAXPROCS(0)}, nil
	}
	var list []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return nil, exit.Usagef("--threads %q: %q is not a thread count", text, word)
		}
		list = append(list, n)
	}
	return list, nil
}
