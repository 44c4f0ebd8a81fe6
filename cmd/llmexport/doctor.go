package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/machine"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/runtime/bench"
	"github.com/llmexport/llmexport/runtime/kernel"
)

func (t *tool) doctorCommand() *cli.Command {
	return &cli.Command{
		Name:      "doctor",
		Usage:     "check this machine: CPU, memory, disks, cache, tokens, hubs, clock",
		ArgsUsage: "[RECIPE]",
		Description: "With RECIPE, its checkpoint and all places that it publishes to are asked, too; nothing is downloaded or written.\n" +
			"What RECIPE needs and cannot have is a problem, everything else a warning. Tokens are sent to their own servers only and\n" +
			"never shown. The exit code is 1 if there is a problem.",
		Flags:              []cli.Flag{cacheFlag(), jsonFlag()},
		BashComplete:       completeRecipes,
		CustomHelpTemplate: help("llmexport doctor", "llmexport doctor qwen3.yaml", "llmexport doctor --json"),
		Action:             t.doctor,
	}
}

// state is the result of a check of the machine.
type state string

const (
	fine    state = "ok"
	skipped state = "skipped"
	warning state = "warning"
	problem state = "problem"
)

// finding is the result of one check. Bytes is the size that the check is about, if it is about one.
type finding struct {
	Check  string `json:"check"`
	State  state  `json:"state"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
}

// examination gathers findings.
type examination struct {
	Version  versionFacts `json:"version"`
	Engines  []string     `json:"engines"` // the releases that packages can be made for
	Findings []finding    `json:"checks"`
}

func (x *examination) add(f finding) { x.Findings = append(x.Findings, f) }

func (x *examination) count(s state) (n int) {
	for _, f := range x.Findings {
		if f.State == s {
			n++
		}
	}
	return n
}

// errUnwell is the exit code 1 of doctor, which has printed the problems.
var errUnwell = errors.New("problems found")

func (t *tool) doctor(c *cli.Context) error {
	var tasks []*stage.Run
	switch c.NArg() {
	case 0:
	case 1:
		var err error
		if tasks, err = t.tasksOf(c.Context, c.Args().First(), nil, ""); err != nil {
			return err
		}
		defer func() {
			for _, r := range tasks {
				r.Close()
			}
		}()
	default:
		return exit.Usagef("doctor takes at most one RECIPE")
	}
	tier, _ := kernel.Tier()
	version, err := newVersionFacts(tier)
	if err != nil {
		return err
	}
	x := &examination{Version: version, Engines: lower.Engines()}
	x.processor()
	if examine != nil {
		examine(x)
	}
	x.memory(machine.ReadMemory(), tasks)
	x.directories(c, tasks)
	x.proxies(os.Getenv)
	// Errors are findings here: what is wrong now is reported at once, and not logged.
	ctx := transfer.Once(zerolog.Nop().WithContext(c.Context))
	x.network(ctx, tasks)
	if err := c.Context.Err(); err != nil {
		return err
	}
	if err := t.printFindings(x, c.Bool("json")); err != nil {
		return err
	}
	if x.count(problem) > 0 {
		return errUnwell
	}
	return nil
}

func (t *tool) printFindings(x *examination, asJSON bool) error {
	if asJSON {
		return t.printJSON(struct {
			OK bool `json:"ok"`
			*examination
		}{x.count(problem) == 0, x})
	}
	s := sheet.New("check", "state", "finding")
	v := x.Version
	s.Row("program", fine, fmt.Sprintf("llmexport %s, %s %s, for MNN %s", v.Version, v.Go, v.Platform, strings.Join(x.Engines, ", ")))
	for _, f := range x.Findings {
		s.Row(f.Check, f.State, f.Detail)
	}
	if err := s.Write(t.stdout, true); err != nil {
		return err
	}
	var b strings.Builder
	for _, f := range x.Findings {
		if f.Hint != "" {
			fmt.Fprintf(&b, "%s: %s\n", sheet.Plain(f.Check), sheet.Plain(f.Hint))
		}
	}
	fmt.Fprintf(&b, "%s, %s\n", count(x.count(problem), "problem"), count(x.count(warning), "warning"))
	_, err := fmt.Fprintf(t.stdout, "\n%s", b.String())
	return err
}

// count is a number of things in words.
func count(n int, thing string) string {
	switch n {
	case 0:
		return "no " + thing + "s"
	case 1:
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// processor reports which kernels run.
func (x *examination) processor() {
	tier, ignored := kernel.Tier()
	f := finding{Check: "cpu", State: fine, Detail: fmt.Sprintf("%s, %s kernels", bench.CPUModel(), tier)}
	switch {
	case ignored != nil:
		f.State, f.Hint = warning, fmt.Sprintf("%v; unset it, or name another", ignored)
	case len(kernel.Features()) == 0:
		f.State, f.Hint = warning, "no vector instructions are used, so everything takes many times longer; this needs AVX2 on amd64, or arm64"
	}
	x.add(f)
	cores := goruntime.GOMAXPROCS(0)
	x.add(finding{Check: "cores", State: fine, Detail: fmt.Sprintf("%d of %d in use", cores, goruntime.NumCPU())})
}

// memory compares the memory with the limits of recipes.
func (x *examination) memory(m machine.Memory, tasks []*stage.Run) {
	if m.Total == 0 {
		x.add(finding{Check: "memory", State: skipped, Detail: "this system does not report its memory"})
		return
	}
	f := finding{Check: "memory", State: fine, Detail: sheet.Rounded(m.Total), Bytes: m.Total}
	if m.Available > 0 {
		f.Detail += ", of which available " + sheet.Rounded(m.Available)
	}
	for _, r := range tasks {
		need := int64(r.Recipe.Limits.Memory)
		switch {
		case need > m.Total:
			f.State, f.Hint = problem, fmt.Sprintf("%s may use %s; set limits.memory, or --memory of run, to less than %s",
				r.Recipe.Name, sheet.Rounded(need), sheet.Rounded(m.Total))
		case m.Available > 0 && need > m.Available && f.State != problem:
			f.State, f.Hint = warning, fmt.Sprintf("%s may use %s; end other programs, or set limits.memory to less", r.Recipe.Name, sheet.Rounded(need))
		}
	}
	x.add(f)
}

// littleSpace is the free space in bytes below which a directory gets a warning: a package of a small model with its
// intermediate results.
const littleSpace = 2 << 30

// directories checks the directories that runs write to.
func (x *examination) directories(c *cli.Context, tasks []*stage.Run) {
	var first *stage.Run
	if len(tasks) > 0 {
		first = tasks[0]
	}
	dir := cacheDir(c, first)
	entries, err := pipeline.List(dir)
	var size int64
	for _, e := range entries {
		size += e.Size
	}
	f := directory("cache", dir, "use --cache DIR or LLMEXPORT_CACHE to put the cache elsewhere; llmexport cache gc frees space")
	if f.Bytes = size; err != nil {
		f.State, f.Detail = problem, err.Error()
	} else {
		f.Detail += fmt.Sprintf("; %d entries, %s", len(entries), sheet.Rounded(size))
	}
	x.add(f)
	if o, err := hub.OptionsFromEnv(); err == nil {
		x.add(directory("hub cache", o.CacheDir, "set HF_HUB_CACHE to put downloaded checkpoints elsewhere"))
	}
	x.add(directory("temporary", os.TempDir(), "set TMPDIR to put temporary files elsewhere"))
}

// directory checks that files can be created in a directory, or that it can be created.
func directory(check, dir, hint string) finding {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	f := finding{Check: check, State: fine, Detail: dir}
	if free := disk.Free(dir); free >= 0 {
		f.Detail += ", free " + sheet.Rounded(free)
		if free < littleSpace {
			f.State, f.Hint = warning, "little space is free; "+hint
		}
	}
	if err := disk.CheckWritable(dir); err != nil {
		f.State, f.Detail, f.Hint = problem, err.Error(), hint
	}
	return f
}

// patience bounds the time that one server has for its answer.
const patience = 15 * time.Second

// bounded calls f with a context that ends after patience.
func bounded(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	return f(ctx)
}
