package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// computeFlags are those of commands that run a model, except how linear layers compute.
func computeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "memory", Value: recipes.DefaultLimits().Memory.String(), Usage: "`SIZE` of memory for expanded weights"},
		&cli.IntFlag{Name: "threads", Usage: "`N` threads, 0 for all cores"},
	}
}

// modeFlag selects how linear layers compute.
func modeFlag() cli.Flag {
	return &cli.StringFlag{Name: "mode", Value: backend.Int8.String(), Usage: "`MODE` of linear layers: int8, as the engine with memory: low, or float"}
}

// modeOption returns the value of --mode.
func modeOption(c *cli.Context) (backend.Mode, error) {
	switch c.String("mode") {
	case backend.Int8.String():
		return backend.Int8, nil
	case backend.Float.String():
		return backend.Float, nil
	}
	return 0, exit.Usagef("--mode must be int8 or float, not %q", c.String("mode"))
}

// computeOptions reads the flags of computeFlags.
func computeOptions(c *cli.Context, mode backend.Mode) (runtime.Options, error) {
	memory, err := memoryOption(c)
	if err != nil {
		return runtime.Options{}, err
	}
	threads, err := number(c, "threads", 0, mostThreads)
	return runtime.Options{Mode: mode, Threads: threads, CacheBytes: memory}, err
}

// openSession opens the package in dir, which continues texts. The caller closes it.
func openSession(c *cli.Context, dir string, o runtime.Options) (*runtime.Package, *runtime.Session, error) {
	p, s, err := openAny(c, dir, o)
	if err != nil {
		return nil, nil, err
	}
	if task := p.Task(); task != runtime.Generate {
		p.Close()
		return nil, nil, hint(fmt.Errorf("%s does not continue texts: %w", dir, tensor.ErrUnsupported), fmt.Sprintf("llmexport %s runs it", task))
	}
	return p, s, nil
}

// openAny opens the package in dir. The caller closes it.
func openAny(c *cli.Context, dir string, o runtime.Options) (*runtime.Package, *runtime.Session, error) {
	// Opening allocates much that stays and little garbage; collecting it would take a fifth of the time to the first
	// token.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	p, err := runtime.Open(dir)
	if err != nil {
		return nil, nil, explained(c.Context, dir, err)
	}
	o.DynamicOption = p.Config.DynamicOption
	s, err := runtime.NewSession(p, cpu.Backend{}, o)
	if err != nil {
		p.Close()
		return nil, nil, explained(c.Context, dir, err)
	}
	return p, s, nil
}

// openReader compiles the parts of a package that read pictures and sound; nil if it has none.
func openReader(ctx context.Context, p *runtime.Package, o runtime.Options) (*runtime.Reader, error) {
	o.DynamicOption = p.Config.DynamicOption
	r, err := runtime.NewReader(p, cpu.Backend{}, o)
	if err != nil {
		return nil, explained(ctx, p.Dir, err)
	}
	return r, nil
}
