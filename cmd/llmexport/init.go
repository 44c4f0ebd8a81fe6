package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

func (t *tool) initCommand() *cli.Command {
	return &cli.Command{
		Name:      "init",
		Usage:     "write a commented recipe",
		ArgsUsage: "REPO|DIR",
		Description: "DIR is a local checkpoint; REPO is ORG/NAME[@REVISION], with or without hf:// before it. The recipe is for the best\n" +
			"quality within a size: gptq, and a budget of the bytes that 4 bits in blocks of 64 take, or --size; for a small model\n" +
			"in fewer bytes distill follows. Of a repository that is not in the Hugging Face cache only small files and the\n" +
			"headers of its shards are downloaded; with HF_HUB_OFFLINE, it is not inspected. The recipe is written to FILE, by\n" +
			"default NAME.yaml with the name of the package; - is standard output. An existing file is never overwritten.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write"},
			&cli.StringFlag{Name: "size", Usage: "largest `SIZE` of all files that the engine opens, such as 400MB"},
			&cli.StringFlag{Name: "for", Usage: "`DEVICE` that must run the package: android, desktop or ios; chooses backends, and a size that fits"},
		},
		CustomHelpTemplate: help("llmexport init Qwen/Qwen3-0.6B", "llmexport init ./Qwen3-0.6B -o qwen3.yaml",
			"llmexport init Qwen/Qwen3-0.6B --for android --size 400MB"),
		Action: t.init,
	}
}

func (t *tool) init(c *cli.Context) error {
	args, err := arguments(c, "REPO|DIR")
	if err != nil {
		return err
	}
	d, err := t.drafting(c)
	if err != nil {
		return err
	}
	name, file := args[0], c.String("output")
	if isDirectory(name) {
		d.Model.Path = name
		if d.Source, err = source.Open(c.Context, source.Origin{Dir: name}, nil); err != nil {
			return err
		}
	} else {
		if d.Model, err = repository(name); err != nil {
			return err
		}
		if d.Source, err = t.look(c, d.Model); err != nil {
			return err
		}
	}
	if d.Source != nil {
		defer d.Source.Close()
	}
	if d.Model.Path != "" {
		if d.Model.Path, err = relative(file, name); err != nil {
			return err
		}
	}
	draft, err := d.Draft()
	if err != nil {
		return err
	}
	if file == "-" {
		_, err := t.stdout.Write(draft.Text)
		return err
	}
	if file == "" {
		file = draft.Name + ".yaml"
	}
	if err := create(file, draft.Text); err != nil {
		return err
	}
	return t.show(func(w io.Writer) error { return describeDraft(w, file, draft) })
}

// drafting reads the flags.
func (t *tool) drafting(c *cli.Context) (d stage.Drafting, err error) {
	d.Limits.Threads = goruntime.GOMAXPROCS(0)
	if c.IsSet("size") {
		if d.Size, err = recipes.ParseSize(c.String("size")); err != nil {
			return d, exit.Usagef("--size %v", err)
		}
		if d.Size == 0 {
			return d, exit.Usagef("--size must be more than 0")
		}
	}
	if c.IsSet("for") {
		if d.Device, err = backends.DeviceOf(c.String("for")); err != nil {
			return d, exit.Usagef("--for %v", err)
		}
	}
	return d, nil
}

// create writes a file that must not exist.
func create(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return hint(fmt.Errorf("%s already exists", file), "use -o to write to another file")
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// describeDraft prints what a recipe asks for and how to go on.
func describeDraft(w io.Writer, file string, d *stage.Draft) error {
	fmt.Fprintf(w, "wrote %s\n", file)
	if d.Rule != "" {
		fmt.Fprintf(w, "size: %s\n", d.Rule)
	}
	run := "llmexport run " + file
	if e := d.Estimate; e != nil {
		run += " takes about " + timeOn(e)
	}
	_, err := fmt.Fprintf(w, "%s; llmexport plan %s shows more\n", run, file)
	return err
}

// look opens a repository by its headers. It returns nil if the repository is not cached and the network may not be
// used.
func (t *tool) look(c *cli.Context, model recipes.Model) (*source.Source, error) {
	tasks, err := t.modelTask(c, model.Repo, model.Repo, model)
	if err != nil {
		return nil, err
	}
	x := tasks[0]
	sk, err := x.Fetch.Skeleton(c.Context, x)
	t.progress.stop()
	if err == nil {
		return source.Open(c.Context, source.OfSkeleton(sk), nil)
	}
	if o, oerr := hub.OptionsFromEnv(); oerr == nil && o.Offline && errors.Is(err, fs.ErrNotExist) {
		zerolog.Ctx(c.Context).Warn().Str("repo", model.Repo).Msg("the model was not inspected: it is not in the cache, and HF_HUB_OFFLINE is set")
		return nil, nil
	}
	return nil, err
}

// relative makes a path relative to the recipe's directory where possible.
func relative(file, path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir := "."
	if file != "-" {
		dir = filepath.Dir(file)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	rel, err := filepath.Rel(dir, abs)
	if err != nil { // another drive
		return filepath.ToSlash(abs), nil
	}
	return filepath.ToSlash(rel), nil
}
