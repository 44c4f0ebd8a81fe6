// Package stagetest runs recipes for tests.
package stagetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

// Strings is how many strings the check tokenizer takes in tests, of more than 30,000.
const Strings = 300

// Run makes the package of a recipe's file and those of its variants, and returns their runs, the one that failed
// included.
func Run(ctx context.Context, recipe, cache string, threads int, overrides ...string) ([]*stage.Run, error) {
	return run(ctx, recipe, cache, threads, func(string) bool { return true }, overrides...)
}

// RunOne makes one of them, by its name.
func RunOne(ctx context.Context, recipe, cache string, threads int, name string) ([]*stage.Run, error) {
	return run(ctx, recipe, cache, threads, func(s string) bool { return s == name })
}

func run(ctx context.Context, recipe, cache string, threads int, wanted func(name string) bool, overrides ...string) ([]*stage.Run, error) {
	// A few strings suffice; TestAllStrings of verify compares all of them.
	if !slices.ContainsFunc(overrides, func(o string) bool { return strings.HasPrefix(o, "verify.tokenizer.strings=") }) {
		overrides = append(slices.Clone(overrides), fmt.Sprintf("verify.tokenizer.strings=%d", Strings))
	}
	r, err := recipes.LoadFile(recipe, stage.Sections(), overrides...)
	if err != nil {
		return nil, err
	}
	all, err := r.Expand()
	if err != nil {
		return nil, err
	}
	store, err := pipeline.OpenStore(cache)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	var runs []*stage.Run
	for _, r := range all {
		if !wanted(r.Name) {
			continue
		}
		run, err := stage.New(r, pipeline.Limits{Memory: min(1<<30, int64(r.Limits.Memory)), Threads: threads})
		if err != nil {
			return runs, err
		}
		run.Store = store
		runs = append(runs, run)
		_, err = run.Execute(ctx, "")
		run.Close()
		if err != nil {
			return runs, err
		}
	}
	return runs, nil
}

// WriteRecipe writes dir/recipe.yaml for a checkpoint, with sections in YAML, and returns its path.
func WriteRecipe(dir, checkpoint, sections string) (string, error) {
	source, err := filepath.Abs(checkpoint)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "recipe.yaml")
	text := fmt.Sprintf("version: 1\nname: small\nmodel: {path: %q}\n%s\n", filepath.ToSlash(source), sections)
	return path, os.WriteFile(path, []byte(text), 0o666)
}

// Export makes the package of a checkpoint below dir and returns its directory.
func Export(ctx context.Context, dir, checkpoint, sections string) (string, error) {
	recipe, err := WriteRecipe(dir, checkpoint, sections)
	if err != nil {
		return "", err
	}
	_, err = Run(ctx, recipe, filepath.Join(dir, "cache"), 2)
	return filepath.Join(dir, "dist", "small"), err
}
