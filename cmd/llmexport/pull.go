package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	goruntime "runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish"
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
			"The exit code is 3 when a check of --verify fails; DIR is then unchanged.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "verify", Usage: "run the checks of the package on this machine first"},
			&cli.BoolFlag{Name: "replace", Usage: "replace another package of llmexport in DIR, or repair a damaged one"},
			&cli.StringFlag{Name: "digest", Usage: "expected `DIGEST` of the package, sha256:..."},
			&cli.IntFlag{Name: "connections", Value: 4, Usage: "`N` connections per file"},
			&cli.IntFlag{Name: "files", Value: 4, Usage: "`N` files at once"},
			&cli.StringFlag{Name: "memory", Value: recipes.DefaultLimits().Memory.String(), Usage: "`SIZE` of memory for --verify"},
			&cli.IntFlag{Name: "threads", Usage: "`N` threads for --verify, 0 for all cores"},
			jsonFlag(),
		},
		CustomHelpTemplate: help(
			"llmexport pull hf://someone/qwen3-0.6b-int4",
			"llmexport pull hf://someone/qwen3-0.6b-int4@v2 models/qwen3 --replace --verify",
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
	dir := ""
	if len(args) == 2 {
		dir = args[1]
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
			return usagef("--digest must be sha256: and 64 hexadecimal digits, not %.80q", s)
		}
		o.Digest = d
	}
	if c.Bool("verify") {
		holdMemory(limits.Memory)
		o.Check = func(ctx context.Context, dir string) error { return t.checkPackage(ctx, dir, limits) }
	}
	_, done, err := publish.Pull(c.Context, args[0], dir, o)
	t.progress.stop()
	if err != nil {
		if e := (*place.RefError)(nil); errors.As(err, &e) || errors.Is(err, fs.ErrNotExist) && !strings.Contains(args[0], "://") {
			return meantHint(err, args[0])
		}
		return err
	}
	if c.Bool("json") {
		return t.printJSON(done)
	}
	_, err = fmt.Fprintf(t.stdout, "%s: %s (%d bytes, %s)\nfrom %s: %d bytes fetched, %d reused\n",
		pullWords[done.Status], sheet.Plain(done.Dir), done.Bytes, done.Digest, sheet.Plain(done.From), done.Fetched, done.Reused)
	if done.Signed {
		_, serr := fmt.Fprintf(t.stdout, "signed, not verified: llmexport-sign verify %s\n", sheet.Plain(done.Dir))
		err = errors.Join(err, serr)
	}
	return err
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
	l := pipeline.Limits{Memory: memory, Threads: threads, Progress: t.progress.follow()}
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
		failedChecks(failed, fmt.Sprintf("%s failed on this machine; the package was not installed", strings.Join(failed, ", "))),
		printChecks(&t.progress, checks, metrics))
}
