package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

const cacheName = ".llmexport"

func cacheFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "cache", EnvVars: []string{"LLMEXPORT_CACHE"},
		Usage: "`DIR` for intermediate results; default is " + cacheName + " next to the directory that holds the packages",
	}
}

// cacheDir returns the cache directory for a recipe: the one of --cache, or the default, which is on the same file
// system as the packages. For dist/name it is next to dist; it is never above the recipe's own directory.
func cacheDir(c *cli.Context, x *stage.Run) string {
	if d := c.String("cache"); d != "" || x == nil {
		return cmp.Or(d, cacheName)
	}
	first := cmp.Or(x.Publish.Targets(x)[0].Dir, filepath.Join("dist", x.Recipe.Name))
	// What depends on the package or its source is below the directory that is meant.
	for above := filepath.Dir(first); strings.Contains(above, "{"); above = filepath.Dir(above) {
		first = above
	}
	parent := filepath.Dir(x.Recipe.Resolve(first))
	if own := filepath.Clean(x.Recipe.Dir); parent == own || filepath.Dir(parent) == parent {
		return filepath.Join(parent, cacheName)
	}
	return filepath.Join(filepath.Dir(parent), cacheName)
}

// openStore opens the cache. Its error has a hint.
func openStore(c *cli.Context, x *stage.Run) (*pipeline.Directory, error) {
	st, err := pipeline.OpenStore(cacheDir(c, x))
	if err != nil {
		return nil, hint(fmt.Errorf("cache: %w", err), "use --cache DIR or LLMEXPORT_CACHE to put the cache elsewhere")
	}
	return st, err
}

func (t *tool) cacheCommand() *cli.Command {
	return &cli.Command{
		Name:  "cache",
		Usage: "show or shrink the cache of intermediate results",
		Description: "Without RECIPE, the cache is --cache, LLMEXPORT_CACHE, or " + cacheName + " in the working directory; with RECIPE, it is\n" +
			"the cache that run would use.",
		CustomHelpTemplate: cli.SubcommandHelpTemplate + examples("llmexport cache list", "llmexport cache gc --keep 10GiB", "llmexport cache path qwen3.yaml"),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the entries, most recently used first", ArgsUsage: "[RECIPE]",
				Flags:  []cli.Flag{cacheFlag(), jsonFlag()},
				Action: t.cacheList, CustomHelpTemplate: help("llmexport cache list --json"),
			},
			{
				Name: "rm", Usage: "remove entries by name, package, model, recipe or age", ArgsUsage: "[ENTRY...]",
				Flags: []cli.Flag{
					cacheFlag(), jsonFlag(),
					&cli.StringFlag{Name: "package", Usage: "remove what was used last for the package called `NAME`"},
					&cli.StringFlag{Name: "model", Usage: "remove what was used last for `MODEL`, a repository or directory"},
					&cli.StringFlag{Name: "recipe", Usage: "remove what was used last for the recipe in `FILE`"},
					&cli.DurationFlag{Name: "older", Usage: "remove only what was not used for `TIME`, such as 72h"},
				},
				Action: t.cacheRemove, CustomHelpTemplate: help("llmexport cache rm --package qwen3-0.6b-int4", "llmexport cache rm --model Qwen/Qwen3-0.6B --older 72h"),
			},
			{
				Name: "gc", Usage: "remove the least recently used entries", ArgsUsage: "[RECIPE]",
				Description: "With --store, what was not used for the time of --older is removed from a shared store, except what the results of a\n" +
					"younger run refer to.",
				Flags: []cli.Flag{
					cacheFlag(), jsonFlag(),
					&cli.StringFlag{Name: "keep", Value: "10GiB", Usage: "`SIZE` to keep; 0 removes everything"},
					&cli.StringFlag{Name: "store", Usage: "`URL` of a shared store, or a directory, instead of the cache"},
					&cli.DurationFlag{Name: "older", Usage: "with --store, `TIME` such as 720h (required)"},
					&cli.BoolFlag{Name: "dry-run", Usage: "with --store, only show what would be removed"},
				},
				Action: t.cacheCollect, CustomHelpTemplate: help("llmexport cache gc --keep 0", "llmexport cache gc --keep 10GiB qwen3.yaml",
					"llmexport cache gc --store s3://bucket/releases --older 720h"),
			},
			{
				Name: "path", Usage: "print the directory", ArgsUsage: "[RECIPE]",
				Flags:  []cli.Flag{cacheFlag()},
				Action: t.cachePath, CustomHelpTemplate: help("llmexport cache path qwen3"),
			},
		},
	}
}

// cacheRecipe loads the optional argument of the cache commands.
func cacheRecipe(c *cli.Context) (*stage.Run, error) {
	switch c.NArg() {
	case 0:
		return nil, nil
	case 1:
		r, err := loadRecipe(c.Args().First(), nil)
		if err != nil {
			return nil, err
		}
		return stage.New(r, pipeline.Limits{})
	}
	return nil, exit.Usagef("%s takes at most one RECIPE", c.Command.HelpName)
}

func (t *tool) cachePath(c *cli.Context) error {
	x, err := cacheRecipe(c)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.stdout, cacheDir(c, x))
	return err
}

// cacheEntry describes an entry in JSON output.
type cacheEntry struct {
	Name    string    `json:"name"`
	Bytes   int64     `json:"bytes"`
	Partial bool      `json:"partial"`
	Used    time.Time `json:"used"`
	// Label is of the package that used the entry last.
	pipeline.Label
}

func (t *tool) printEntries(c *cli.Context, dir string, list []pipeline.Entry) error {
	entries := make([]cacheEntry, 0, len(list))
	var total int64
	for _, e := range list {
		entries = append(entries, cacheEntry{e.Name, e.Size, e.Partial, e.Used, e.Label})
		total += e.Size
	}
	if c.Bool("json") {
		return t.printJSON(struct {
			Dir     string       `json:"dir"`
			Bytes   int64        `json:"bytes"`
			Entries []cacheEntry `json:"entries"`
		}{dir, total, entries})
	}
	s := sheet.New("package", "model", "recipe", ">size", "last used", "entry")
	for _, e := range entries {
		s.Row(orDash(e.Package), orDash(e.Model), orDash(e.Recipe), sheet.Rounded(e.Bytes), span(time.Since(e.Used).Seconds())+" ago", e.Name)
	}
	return t.show(func(w io.Writer) error {
		err := s.Write(w, true)
		_, ferr := fmt.Fprintf(w, "%d entries, %s in %s\n", len(entries), sheet.Size(total), dir)
		return errors.Join(err, ferr)
	})
}

func (t *tool) cacheList(c *cli.Context) error {
	x, err := cacheRecipe(c)
	if err != nil {
		return err
	}
	dir := cacheDir(c, x)
	list, err := pipeline.List(dir)
	if err != nil {
		return err
	}
	return t.printEntries(c, dir, list)
}

func (t *tool) cacheCollect(c *cli.Context) error {
	if c.IsSet("store") {
		return t.storeCollect(c)
	}
	x, err := cacheRecipe(c)
	if err != nil {
		return err
	}
	keep, err := recipes.ParseSize(c.String("keep"))
	if err != nil {
		return exit.Usagef("--keep %v", err)
	}
	dir := cacheDir(c, x)
	// Opening the store would create it.
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return t.printEntries(c, dir, nil)
	}
	st, err := openStore(c, x)
	if err != nil {
		return err
	}
	defer st.Close()
	gone, err := st.Collect(int64(keep))
	if err != nil {
		return err
	}
	if !c.Bool("json") {
		fmt.Fprintln(t.stdout, "removed:")
	}
	return t.printEntries(c, dir, gone)
}

// storeCollect shrinks a shared store.
func (t *tool) storeCollect(c *cli.Context) error {
	older := c.Duration("older")
	switch {
	case c.NArg() > 0 || c.IsSet("keep") || c.IsSet("cache"):
		return exit.Usagef("cache gc: --store goes with --older, and not with RECIPE, --keep or --cache")
	case older <= 0:
		return exit.Usagef("cache gc --store needs --older TIME, such as 720h")
	}
	s, err := openShared(c)
	if err != nil {
		return err
	}
	g, err := s.Collect(c.Context, time.Now().Add(-older), c.Bool("dry-run"))
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return t.printJSON(g)
	}
	return t.show(func(w io.Writer) error {
		for _, name := range g.Names {
			fmt.Fprintln(w, sheet.Plain(name))
		}
		verb := "removed"
		if c.Bool("dry-run") {
			verb = "to remove"
		}
		_, err := fmt.Fprintf(w, "%s: %d names, %d blobs, %s; kept: %d names, %d blobs in %s\n", verb, len(g.Names), g.Blobs, sheet.Size(g.Bytes),
			g.KeptNames, g.KeptBlobs, s)
		return err
	})
}

func (t *tool) cacheRemove(c *cli.Context) error {
	chosen := false
	for _, name := range []string{"package", "model", "recipe", "older"} {
		chosen = chosen || c.IsSet(name)
	}
	if !chosen && c.NArg() == 0 {
		return hint(exit.Usagef("cache rm needs an ENTRY, --package, --model, --recipe or --older"), "llmexport cache list shows them")
	}
	dir := cacheDir(c, nil)
	// Opening the store would create it.
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return t.printEntries(c, dir, nil)
	}
	st, err := openStore(c, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	is := func(flag, value string) bool { return !c.IsSet(flag) || c.String(flag) == value }
	gone, err := st.Remove(func(e pipeline.Entry) bool {
		return (c.NArg() == 0 || slices.Contains(c.Args().Slice(), e.Name)) && is("package", e.Label.Package) && is("model", e.Label.Model) &&
			is("recipe", e.Label.Recipe) && (!c.IsSet("older") || time.Since(e.Used) > c.Duration("older"))
	})
	if err != nil {
		return err
	}
	if !c.Bool("json") {
		fmt.Fprintln(t.stdout, "removed:")
	}
	return t.printEntries(c, dir, gone)
}
