package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/recipes"
)

func (t *tool) reproduceCommand() *cli.Command {
	return &cli.Command{
		Name:      "reproduce",
		Usage:     "rebuild a package from its manifest and compare every byte",
		ArgsUsage: "DIR",
		Description: "The source is the recorded revision of the repository, or the directory given by --source. The package is built in a\n" +
			"temporary directory with a cache of its own. The exit code is 3 when the result differs.\n\n" +
			"--layers makes a sample only: the matrices of the named layers are encoded again over those that the package has before them,\n" +
			"on text that is made again. Bits of a budget are taken from the package.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "source", Usage: "`CHECKPOINT` directory to build from"},
			&cli.StringFlag{Name: "layers", Usage: "`LIST` of layers to make again, such as 0,17 or 0-3; the first layer is 0"},
			&cli.StringFlag{Name: "base", Value: ".", Usage: "`DIR` that paths in the recipe, for example of texts, are relative to"},
			&cli.StringFlag{Name: "tmp", Usage: "parent `DIR` of the temporary directory; needs room for two packages"},
			&cli.StringFlag{Name: "memory", Usage: "memory limit `SIZE`"},
			&cli.StringFlag{Name: "threads", Usage: "`N` threads, 0 for all cores"},
			jsonFlag(),
		},
		CustomHelpTemplate: help(
			"llmexport reproduce dist/qwen3-0.6b-int4",
			"llmexport reproduce dist/qwen3-0.6b-int4 --source ./Qwen3-0.6B",
			"llmexport reproduce dist/qwen3-8b-int4 --layers 0,17",
		),
		Action: t.reproduce,
	}
}

func (t *tool) reproduce(c *cli.Context) (err error) {
	args, err := arguments(c, "DIR")
	if err != nil {
		return err
	}
	dir := args[0]
	if err := checkPackage(dir); err != nil {
		return err
	}
	m, err := manifest.Open(dir)
	if err != nil {
		return err
	}
	if len(m.Recipe) == 0 {
		return fmt.Errorf("%s: the manifest contains no recipe", dir)
	}
	r, err := recipes.Load(m.Recipe, filepath.Join(c.String("base"), "recipe.json"), stage.Sections(), overrides(c)...)
	if err != nil {
		return err
	}
	if m.Source.Repo == "" && c.String("source") == "" {
		return exit.Usagef("the package was made from a local checkpoint; use --source to name it")
	}
	tmp, err := os.MkdirTemp(c.String("tmp"), "llmexport-reproduce-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	x, err := t.rebuilding(c.Context, r, c.String("source"), m, tmp)
	if err != nil {
		return err
	}
	defer x.close()
	if c.IsSet("layers") {
		return t.recode(c, x, dir)
	}
	built, sum, err := t.rebuild(c.Context, x)
	if err != nil {
		return err
	}
	d, err := compare(c.Context, dir, built)
	if err != nil {
		return err
	}
	d.Metrics = []metricDiff{}
	if c.Bool("json") {
		err = t.printJSON(struct {
			Digest  digest.Digest `json:"digest"`
			Rebuilt digest.Digest `json:"rebuilt_digest"`
			*difference
		}{m.Digest, sum, d})
	} else if d.Equal {
		_, err = fmt.Fprintf(t.stdout, "equal: %d files, %s\n", len(m.Files)+1, m.Digest)
	} else {
		_, err = fmt.Fprintf(t.stdout, "digest in A %s\ndigest in B %s (rebuilt)\n\n", m.Digest, sum)
		err = errors.Join(err, d.write(t.stdout, false))
	}
	if err == nil && !d.Equal {
		err = &verdictError{dir + " was not reproduced"}
		if m.Tool.Version != stage.Version {
			err = hint(err, fmt.Sprintf("the package was made by version %s, this is version %s", m.Tool.Version, stage.Version))
		}
	}
	return err
}

// rebuilding is the run that makes a package again, with a cache of its own.
type rebuilding struct {
	*stage.Run
	store *pipeline.Directory
}

func (x *rebuilding) close() {
	x.Close()
	x.store.Close()
}

// rebuilding prepares making the package of a recipe below tmp, from a copy of local if it is not empty.
func (t *tool) rebuilding(ctx context.Context, r *recipes.Recipe, local string, m *manifest.Manifest, tmp string) (*rebuilding, error) {
	x, err := t.task(ctx, r)
	if err != nil {
		return nil, err
	}
	store, err := pipeline.OpenStore(filepath.Join(tmp, "cache"))
	if err != nil {
		x.Close()
		return nil, err
	}
	x.Store = store
	x.Fetch.Local, x.Fetch.Access = local, &m.Source.Access
	x.Fetch.Want = make([]hub.File, len(m.Source.Files))
	for i, f := range m.Source.Files {
		x.Fetch.Want[i] = hub.File{Name: f.Name, Size: f.Size, SHA256: f.SHA256}
	}
	holdMemory(x.Limits.Memory)
	return &rebuilding{x, store}, nil
}

// rebuild makes the package again and returns its directory and digest. Publishing is left out: the result is compared where it was made.
func (t *tool) rebuild(ctx context.Context, x *rebuilding) (string, digest.Digest, error) {
	_, err := x.Execute(ctx, x.Verify.String())
	t.progress.stop()
	var failed *stage.FailedError
	if err != nil && !errors.As(err, &failed) {
		return "", "", otherSource(err)
	}
	p, err := place.Open(x.Package())
	if err != nil {
		return "", "", err
	}
	return p.Dir, p.Manifest.Digest, nil
}

// otherSource makes a verdict of the error that a source is not that of a package.
func otherSource(err error) error {
	if other := (*source.OtherError)(nil); errors.As(err, &other) {
		return &verdictError{other.Error()}
	}
	return err
}

// recode makes the layers of --layers again, and prints how they compare with those of the package.
func (t *tool) recode(c *cli.Context, x *rebuilding, dir string) error {
	layers, err := parseRanges(c.String("layers"))
	if err != nil {
		return exit.Usagef("--layers %s: %v", c.String("layers"), err)
	}
	p, err := place.OpenVerified(c.Context, dir)
	if err != nil {
		return err
	}
	list, err := x.Recode(c.Context, p, layers)
	t.progress.stop()
	if none := (*stage.NoLayerError)(nil); errors.As(err, &none) {
		return exit.Usagef("--layers %s: %v", c.String("layers"), err)
	}
	if err != nil {
		return otherSource(err)
	}
	different := 0
	for _, l := range list {
		different += len(l.Different)
	}
	if c.Bool("json") {
		err = t.printJSON(struct {
			Digest digest.Digest        `json:"digest"`
			Equal  bool                 `json:"equal"`
			Layers []stage.RecodedLayer `json:"layers"`
		}{p.Manifest.Digest, different == 0, list})
	} else {
		for _, l := range list {
			text := fmt.Sprintf("layer %d: %d matrices equal", l.Layer, l.Matrices)
			if n := len(l.Different); n > 0 {
				text = fmt.Sprintf("layer %d: %d of %d matrices differ: %s", l.Layer, n, l.Matrices, strings.Join(l.Different, ", "))
			}
			if _, err = fmt.Fprintln(t.stdout, text); err != nil {
				break
			}
		}
	}
	if err == nil && different > 0 {
		err = &verdictError{fmt.Sprintf("%s was not reproduced: %d matrices differ", dir, different)}
	}
	return err
}
