package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

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
		Description: "DIR is a local checkpoint; REPO is ORG/NAME[@REVISION], with or without hf:// before it. Of a repository that is\n" +
			"not in the Hugging Face cache only small files and the headers of its shards are fetched; with HF_HUB_OFFLINE, it is\n" +
			"not inspected. The recipe is written to FILE, by default NAME.yaml with the name of the package; - is standard\n" +
			"output. An existing file is never overwritten.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write"},
		},
		CustomHelpTemplate: help("llmexport init Qwen/Qwen3-0.6B", "llmexport init ./Qwen3-0.6B -o qwen3.yaml"),
		Action:             t.init,
	}
}

func (t *tool) init(c *cli.Context) error {
	args, err := arguments(c, "REPO|DIR")
	if err != nil {
		return err
	}
	name := args[0]
	var model recipes.Model
	var src *source.Source
	if st, err := os.Stat(name); err == nil && st.IsDir() {
		model = recipes.Model{Path: name}
		if src, err = source.Open(c.Context, source.Origin{Dir: name}, nil); err != nil {
			return err
		}
	} else {
		if model, err = repository(name); err != nil {
			return err
		}
		name = model.Repo
		if src, err = t.look(c, model); err != nil {
			return err
		}
	}
	if src != nil {
		defer src.Close()
	}
	file := c.String("output")
	if file == "" {
		file = stage.PackageName(name, stage.NewQuantize().Bits) + ".yaml"
	}
	if model.Path != "" {
		if model.Path, err = relative(file, model.Path); err != nil {
			return err
		}
	}
	text, err := stage.InitRecipe(model, src)
	if err != nil {
		return err
	}
	if file == "-" {
		_, err := t.stdout.Write(text)
		return err
	}
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
	_, err = fmt.Fprintf(t.stdout, "wrote %s\n", file)
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
