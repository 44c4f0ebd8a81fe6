package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

// recipeFlags override parts of a recipe.
func recipeFlags() []cli.Flag {
	list := []cli.Flag{
		&cli.StringSliceFlag{Name: "set", Usage: "override a value of the recipe: `PATH=VALUE`, for example quantize.bits=8; repeatable"},
		&cli.StringFlag{Name: "memory", Usage: "memory limit `SIZE`, such as 2GiB (same as --set limits.memory=SIZE)"},
		&cli.StringFlag{Name: "threads", Usage: "`N` threads, 0 for all cores (same as --set limits.threads=N)"},
		&cli.StringFlag{Name: "variant", Usage: "make only the package called `NAME`"},
	}
	if bound != nil {
		list = append(list, &cli.StringFlag{Name: "device-memory",
			Usage: "memory limit of the card, `SIZE` such as 16GiB (same as --set limits.device_memory=SIZE)"})
	}
	return list
}

// overrides returns the overrides given by flags.
func overrides(c *cli.Context) []string {
	list := slices.Clone(c.StringSlice("set"))
	for _, n := range []string{"memory", "threads", "device-memory"} {
		if c.IsSet(n) {
			list = append(list, "limits."+strings.ReplaceAll(n, "-", "_")+"="+c.String(n))
		}
	}
	if c.Bool("no-verify") {
		list = append(list, "verify.enabled=false")
	}
	return list
}

// shippedDir replaces the directory of a shipped recipe: its paths are relative to a directory next to dist.
const shippedDir = "recipes"

// loadRecipe reads the recipe in a file, or the shipped one called arg.
func loadRecipe(arg string, overrides []string) (*recipes.Recipe, error) {
	st, err := os.Stat(arg)
	shipped := slices.Contains(recipes.Shipped(), arg)
	switch {
	case err == nil && st.IsDir() && !shipped:
		return nil, hint(exit.Usagef("%s is a directory, not a recipe", arg), fmt.Sprintf("llmexport init %s writes a recipe for a checkpoint", arg))
	case err == nil && strings.EqualFold(filepath.Ext(arg), ".gguf"):
		return nil, hint(exit.Usagef("%s: GGUF cannot be read", arg), ggufAdvice)
	case err == nil && !st.IsDir():
		return recipes.LoadFile(arg, stage.Sections(), overrides...)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case !shipped:
		return nil, absent(arg)
	}
	b, err := recipes.ReadShipped(arg)
	if err != nil {
		return nil, err
	}
	return recipes.Load(b, filepath.Join(shippedDir, arg+".yaml"), stage.Sections(), overrides...)
}

// absent is the error for a recipe that is neither a file nor shipped.
func absent(arg string) error {
	err := exit.Usagef("%s: no such file", arg)
	if repo, _ := recipes.MeantRepo(arg); repo != "" && filepath.Ext(arg) != ".yaml" && filepath.Ext(arg) != ".yml" {
		return hint(err, fmt.Sprintf("llmexport init %s writes a recipe for the repository; llmexport plan hf://%s shows the layout of its package", repo, repo))
	}
	return hint(err, "shipped recipes are "+strings.Join(recipes.Shipped(), ", "))
}

// expand returns the recipes of all packages, or only the one that --variant names.
func expand(r *recipes.Recipe, variant string) ([]*recipes.Recipe, error) {
	all, err := r.Expand()
	if err != nil || variant == "" {
		return all, err
	}
	var names []string
	for _, v := range all {
		if v.Name == variant {
			return []*recipes.Recipe{v}, nil
		}
		names = append(names, v.Name)
	}
	return nil, exit.Usagef("--variant: the recipe makes no package called %q; it makes %s", variant, strings.Join(names, ", "))
}

// limits returns the limits of the recipe on this machine. That of a card is for all packages that are made.
func (t *tool) limits(r *recipes.Recipe) pipeline.Limits {
	if bound != nil && r.Limits.DeviceMemory > 0 {
		bound(int64(r.Limits.DeviceMemory))
	}
	l := pipeline.Limits{Memory: int64(r.Limits.Memory), Threads: r.Limits.Threads, Progress: t.progress.follow(r.Name)}
	if l.Threads == 0 {
		l.Threads = goruntime.GOMAXPROCS(0)
	}
	return l
}

// task checks the options of one package to make, as far as possible without the source. The caller closes the run.
func (t *tool) task(ctx context.Context, r *recipes.Recipe) (*stage.Run, error) {
	x, err := stage.New(r, t.limits(r))
	if x == nil {
		return nil, err
	}
	if err = recipes.Join(err, x.Validate(ctx)); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

// moreMistakes returns what else is wrong with the sections of a recipe that was read in part.
func (t *tool) moreMistakes(ctx context.Context, r *recipes.Recipe) error {
	if r == nil {
		return nil
	}
	x, err := t.task(ctx, r)
	if err == nil {
		x.Close()
	}
	if !errors.As(err, new(*recipes.Error)) { // because of what could not be read
		return nil
	}
	return err
}

// tasks loads the recipe of a command.
func (t *tool) tasks(c *cli.Context, arg string) ([]*stage.Run, error) {
	return t.tasksOf(c.Context, arg, overrides(c), c.String("variant"))
}

// tasksOf loads a recipe and checks all of its packages, or the one of a variant, before the first one is made. Of several only
// the one at work has its checkpoint open.
func (t *tool) tasksOf(ctx context.Context, arg string, overrides []string, variant string) ([]*stage.Run, error) {
	r, err := loadRecipe(arg, overrides)
	if err != nil {
		return nil, recipes.Join(err, t.moreMistakes(ctx, r))
	}
	all, err := expand(r, variant)
	if err != nil {
		return nil, err
	}
	var list []*stage.Run
	var errs []error
	taken := map[string]string{}
	for _, v := range all {
		x, err := t.task(ctx, v)
		if errs = append(errs, err); err != nil {
			continue
		}
		if len(all) > 1 {
			x.Close()
		}
		places, err := x.Publish.Places(ctx, x)
		if err != nil {
			return nil, err
		}
		for _, p := range places {
			if other, ok := taken[p]; ok {
				return nil, v.Stages["publish"].Errorf("", "%s and %s would both go to %s; give every variant its own publish", other, v.Name, p)
			}
			taken[p] = v.Name
		}
		list = append(list, x)
	}
	if err := recipes.Join(errs...); err != nil {
		for _, x := range list {
			x.Close()
		}
		return nil, err
	}
	return list, nil
}

// completeRecipes completes names of shipped recipes, and recipes in the working directory. Shells complete other files.
func completeRecipes(c *cli.Context) {
	if last := len(os.Args) - 2; last > 0 && strings.HasPrefix(os.Args[last], "-") {
		cli.DefaultCompleteWithFlags(c.Command)(c)
		return
	}
	files, _ := filepath.Glob("*.y*ml") // the pattern is valid
	for _, n := range slices.Concat(recipes.Shipped(), files) {
		fmt.Fprintln(c.App.Writer, n)
	}
}
