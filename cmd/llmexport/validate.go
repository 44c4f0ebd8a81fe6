package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

func (t *tool) validateCommand() *cli.Command {
	return &cli.Command{
		Name:               "validate",
		Usage:              "check recipes without reading their sources",
		ArgsUsage:          "RECIPE...",
		Flags:              []cli.Flag{recipeFlags()[0]},
		BashComplete:       completeRecipes,
		CustomHelpTemplate: help("llmexport validate qwen3.yaml", "llmexport validate recipes/*.yaml"),
		Action:             t.validate,
	}
}

func (t *tool) validate(c *cli.Context) error {
	if c.NArg() == 0 {
		return exit.Usagef("validate needs at least one RECIPE")
	}
	var errs []error
	for _, arg := range c.Args().Slice() {
		tasks, err := t.tasks(c, arg)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var names []string
		for _, x := range tasks {
			x.Close()
			names = append(names, x.Recipe.Name)
		}
		if _, err := fmt.Fprintf(t.stdout, "ok  %s: %s\n", arg, strings.Join(names, ", ")); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

func (t *tool) schemaCommand() *cli.Command {
	return &cli.Command{
		Name:               "schema",
		Usage:              "print the JSON Schema of recipes, for editors",
		CustomHelpTemplate: help("llmexport schema > recipe.schema.json"),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			b, err := recipes.Schema(stage.Defaults().BySection())
			if err != nil {
				return err
			}
			_, err = t.stdout.Write(b)
			return err
		},
	}
}
