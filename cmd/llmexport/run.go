package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/place"
)

func (t *tool) runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "make, verify and publish the packages of a recipe",
		ArgsUsage: "RECIPE",
		Description: "RECIPE is a file or the name of a shipped recipe. All packages of the recipe are made, including its variants.\n" +
			"Results of earlier runs with the same inputs are reused. A package that fails verification is not published.",
		Flags: append(recipeFlags(),
			cacheFlag(),
			storeFlag("`URL` of a shared store, s3://bucket/prefix or oci://registry/repository, or a directory: reuse results of other machines"),
			&cli.BoolFlag{Name: "no-verify", Usage: "publish without verifying (same as --set verify.enabled=false)"},
			&cli.BoolFlag{Name: "dry-run", Usage: "do everything but publish, and show what publishing would change"},
			&cli.BoolFlag{Name: "replace", Usage: "replace packages that llmexport published in the target places"},
			htmlFlag("write the report of all packages and times to `FILE`; default is report-NAME.html in the cache"),
			jsonFlag(),
		),
		BashComplete: completeRecipes,
		CustomHelpTemplate: help(
			"llmexport run qwen3.yaml",
			"llmexport run qwen3 --set quantize.bits=8 --set publish[0].dir=out/qwen3-int8",
			"llmexport run qwen3.yaml --variant qwen3-0.6b-int8 --replace --json",
		),
		Action: t.run,
	}
}

// outcome is the result for one package in JSON output.
type outcome struct {
	Name   string        `json:"name"`
	Report *about.Report `json:"report,omitempty"`
	// Published lists where the package is now.
	Published []place.Receipt `json:"published"`
	Error     string          `json:"error,omitempty"`

	digest  digest.Digest // of a package whose publication a dry run has compared
	changes []publish.PlaceDiff
}

// printPreviews prints what publishing would change.
func (t *tool) printPreviews(asJSON bool, results []outcome) error {
	var previews []preview
	for _, o := range results {
		previews = append(previews, preview{Name: o.Name, Digest: o.digest, Places: o.changes, Error: o.Error})
	}
	if !asJSON {
		fmt.Fprintln(t.stdout)
	}
	return t.printChanges(asJSON, previews)
}

func (t *tool) run(c *cli.Context) error {
	args, err := arguments(c, "RECIPE")
	if err != nil {
		return err
	}
	tasks, err := t.tasks(c, args[0])
	if err != nil {
		return err
	}
	if err := checkPage(c); err != nil {
		return err
	}
	results, moves, err := t.makeAll(c, tasks)
	page, perr := runPage(c, tasks[0], results)
	err = errors.Join(err, perr)
	if c.Bool("dry-run") && results != nil {
		return errors.Join(err, t.printPreviews(c.Bool("json"), results))
	}
	if c.Bool("json") && results != nil {
		werr := t.printJSON(struct {
			Packages []outcome      `json:"packages"`
			Channels []publish.Move `json:"channels,omitempty"`
			// Page is the file of the report in HTML.
			Page string `json:"page,omitempty"`
		}{results, moves, page})
		return errors.Join(err, werr)
	}
	err = errors.Join(err, printMoves(t.stdout, moves))
	if page != "" {
		fmt.Fprintf(t.stdout, "\nreport: %s\n", sheet.Plain(page))
	}
	return err
}

// allowReplace allows packages of ours to be replaced wherever a run publishes.
func allowReplace(x *stage.Run) error {
	x.Publish = x.Publish.Targets(x)
	for i, t := range x.Publish {
		var err error
		if x.Publish[i], err = t.With("replace"); err != nil {
			return err
		}
	}
	return nil
}

// execute makes one package. It returns the partial outcome with an error.
func (t *tool) execute(ctx context.Context, x *stage.Run) (outcome, error) {
	defer x.Close()
	timings, err := x.Execute(ctx, "")
	t.progress.leave(x.Limits.Progress)
	o := outcome{Name: x.Recipe.Name, Published: append([]place.Receipt{}, x.Published...), changes: append([]publish.PlaceDiff{}, x.Changes...)}
	if !x.Verdict.Made() { // the run ended before verification
		return o, err
	}
	if x.Changes != nil {
		o.digest = x.Verdict.Digest
	}
	b, rerr := os.ReadFile(filepath.Join(x.Package(), about.ReportName))
	if rerr == nil {
		rerr = json.Unmarshal(b, &o.Report)
	}
	if rerr != nil {
		return o, errors.Join(err, rerr)
	}
	for _, x := range timings {
		o.Report.Timings = append(o.Report.Timings, about.Timing{Stage: x.Stage, Seconds: x.Seconds})
	}
	return o, err
}

func (t *tool) printOutcome(o outcome, first bool) error {
	if o.Report == nil {
		return nil
	}
	if !first {
		fmt.Fprintln(t.stdout)
	}
	if err := o.Report.WriteText(t.stdout); err != nil {
		return err
	}
	if len(o.Published) > 0 {
		fmt.Fprintln(t.stdout)
	}
	return printReceipts(t.stdout, o.Published)
}
