package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/recipes"
)

func (t *tool) pullCommand() *cli.Command {
	return &cli.Command{
		Name:      "pull",
		Usage:     "download a published package",
		ArgsUsage: "REF [DIR]",
		Description: "REF is one of:\n   " + strings.Join(publish.Origins(), "\n   ") + "\n" +
			"DIR is {name} by default; {name} in it stands for the name of the package. DIR appears only after every byte has been\n" +
			"compared with the manifest. Files that the package in DIR already has are not fetched again, and an interrupted pull\n" +
			"resumes where it stopped.\n" +
			"A CHANNEL such as stable names the packages of a release: the only one, or one that --package, --max-ram or --for choose.\n" +
			"The exit code is 3 when a check of --verify fails; DIR is then unchanged.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "verify", Usage: "run the checks of the package on this machine first"},
			&cli.BoolFlag{Name: "replace", Usage: "replace another package of llmexport in DIR, or repair a damaged one"},
			&cli.StringFlag{Name: "digest", Usage: "expected `DIGEST` of the package, sha256:..."},
			&cli.StringFlag{Name: "package", Usage: "`NAME` of the wanted package of a channel that names several"},
			&cli.StringFlag{Name: "max-ram", Usage: "of the packages of a channel, the closest to the source that needs at most `SIZE` of memory on a device"},
			&cli.StringFlag{Name: "for", Usage: "`DEVICE` that must run the package of a channel: " + strings.Join(channel.Devices(), ", ") + " or a backend such as opencl"},
			&cli.IntFlag{Name: "connections", Value: 4, Usage: "`N` connections per file"},
			&cli.IntFlag{Name: "files", Value: 4, Usage: "`N` files at once"},
			&cli.StringFlag{Name: "memory", Value: recipes.DefaultLimits().Memory.String(), Usage: "`SIZE` of memory for --verify"},
			&cli.IntFlag{Name: "threads", Usage: "`N` threads for --verify, 0 for all cores"},
			jsonFlag(),
		},
		CustomHelpTemplate: help(
			"llmexport pull hf://someone/qwen3-0.6b-int4",
			"llmexport pull hf://someone/qwen3-0.6b-int4@v2 models/qwen3 --replace --verify",
			"llmexport pull oci://ghcr.io/someone/qwen3@stable --max-ram 4GB --for android",
			"llmexport pull /mnt/releases/qwen3-0.6b-int4 --digest sha256:<64 hex digits>",
		),
		Action: t.pull,
	}
}

// mostConnections bounds --connections and --files: more do not help, and servers may block them.
const mostConnections = 64

func (t *tool) pull(c *cli.Context) error {
	args := c.Args().Slice()
	if len(args) != 1 && len(args) != 2 {
		_, err := arguments(c, "REF", "[DIR]")
		return err
	}
	to := ""
	if len(args) == 2 {
		to = args[1]
	}
	o := publish.PullOptions{UserAgent: "llmexport/" + stage.Version}
	o.Replace, o.Files, o.Transfer.Connections = c.Bool("replace"), c.Int("files"), c.Int("connections")
	o.Progress = func(file string, done, total int64) { t.progress.report("pull", file, done, total) }
	for _, name := range []string{"files", "connections"} {
		if _, err := number(c, name, 1, mostConnections); err != nil {
			return err
		}
	}
	limits, err := t.packageLimits(c)
	if err != nil {
		return err
	}
	if s := c.String("digest"); s != "" {
		d, err := digest.Parse(s)
		if err != nil {
			return exit.Usagef("--digest must be sha256: and 64 hexadecimal digits, not %.80q", s)
		}
		o.Digest = d
	}
	var picked choice
	if o.Choose, err = picked.chooser(c); err != nil {
		return err
	}
	if c.Bool("verify") {
		holdMemory(limits.Memory)
		o.Check = func(ctx context.Context, dir string) error { return t.checkPackage(ctx, dir, limits) }
	}
	_, done, err := publish.Pull(c.Context, args[0], to, o)
	t.progress.stop()
	if err != nil {
		if e := (*channel.AmbiguousError)(nil); errors.As(err, &e) {
			return hint(exit.Usagef("%v", err), "--package NAME takes one, --max-ram SIZE or --for DEVICE the one that fits best")
		}
		if e := (*place.RefError)(nil); errors.As(err, &e) || errors.Is(err, fs.ErrNotExist) && !strings.Contains(args[0], "://") {
			return meantHint(err, args[0])
		}
		return err
	}
	if picked.unused(c) {
		t.progress.log.Warn().Msg("--package, --max-ram and --for choose among the packages of a channel; the reference names one package, which was pulled")
	}
	if c.Bool("json") {
		return t.printJSON(struct {
			dir.Pulled
			Chosen string `json:"chosen,omitempty"`
			Why    string `json:"why,omitempty"`
		}{done, picked.name, picked.why})
	}
	if picked.why != "" {
		if _, err := fmt.Fprintf(t.stdout, "chosen: %s, %s\n", sheet.Plain(picked.name), picked.why); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(t.stdout, "%s: %s (%d bytes, %s)\nfrom %s: %d bytes fetched, %d reused\n",
		pullWords[done.Status], sheet.Plain(done.Dir), done.Bytes, done.Digest, sheet.Plain(done.From), done.Fetched, done.Reused)
	if done.Signed {
		_, serr := fmt.Fprintf(t.stdout, "signed, not verified: llmexport-sign verify %s\n", sheet.Plain(done.Dir))
		err = errors.Join(err, serr)
	}
	return err
}

// choice is the package of a channel that was chosen.
type choice struct{ name, why string }

// chooser returns the chooser of the flags, which fills in the choice.
func (p *choice) chooser(c *cli.Context) (place.Chooser, error) {
	w := channel.Want{Name: c.String("package"), For: c.String("for")}
	if s := c.String("max-ram"); s != "" {
		n, err := recipes.ParseSize(s)
		if err != nil {
			return nil, exit.Usagef("--max-ram %v", err)
		}
		if n == 0 {
			return nil, exit.Usagef("--max-ram must be more than 0")
		}
		w.MaxRAM = int64(n)
	}
	if known := append(channel.Devices(), recipes.Backends...); w.For != "" && !slices.Contains(known, w.For) {
		return nil, exit.Usagef("--for must be one of %s, not %q", strings.Join(known, ", "), w.For)
	}
	return func(r channel.Release) (channel.Package, error) {
		found, why, err := r.Choose(w)
		p.name, p.why = found.Name, why
		return found, err
	}, nil
}

// unused reports whether flags of a choice were given and nothing was chosen.
func (p *choice) unused(c *cli.Context) bool {
	return p.name == "" && (c.String("package") != "" || c.String("max-ram") != "" || c.String("for") != "")
}

// pullWords describe the effect of a pull.
var pullWords = map[place.Status]string{place.Published: "pulled", place.Replaced: "replaced", place.Unchanged: "unchanged"}

// packageLimits returns the limits of --memory and --threads.
func (t *tool) packageLimits(c *cli.Context) (pipeline.Limits, error) {
	memory, err := memoryOption(c)
	if err != nil {
		return pipeline.Limits{}, err
	}
	threads, err := number(c, "threads", 0, mostThreads)
	if err != nil {
		return pipeline.Limits{}, err
	}
	l := pipeline.Limits{Memory: memory, Threads: threads, Progress: t.progress.follow("")}
	if l.Threads == 0 {
		l.Threads = goruntime.GOMAXPROCS(0)
	}
	return l, nil
}

// checkPackage verifies a package as the command verify does without a source.
func (t *tool) checkPackage(ctx context.Context, dir string, limits pipeline.Limits) error {
	m, err := readManifest(dir)
	if err != nil {
		return err
	}
	o, err := stage.OptionsOf(m, limits)
	if err != nil {
		return err
	}
	res, err := stage.VerifyPackage(ctx, dir, "", o)
	t.progress.stop()
	if err != nil {
		return err
	}
	failed := res.Failed()
	if len(failed) == 0 {
		return nil
	}
	checks, metrics := res.Measures()
	return errors.Join(
		failedChecks(res.Checks, fmt.Sprintf("%s failed on this machine; the package was not installed", strings.Join(failed, ", "))),
		printChecks(&t.progress, checks, metrics))
}
