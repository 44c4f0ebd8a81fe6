package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/shared"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/recipes"
)

func storeFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "store", EnvVars: []string{"LLMEXPORT_STORE"}, Usage: usage}
}

func (t *tool) stageCommand() *cli.Command {
	return &cli.Command{
		Name:      "stage",
		Usage:     "run a part of a recipe's stages, with results in a store that machines share",
		ArgsUsage: "RECIPE",
		Description: "The stages are fetch, rewrite, calibrate, allocate, quantize, verify, sign and publish. Results, checkpoints and unfinished\n" +
			"work lie in --store, so that the next stage, or the same one after a kill, may run on another machine. A stage up to verify\n" +
			"needs the checkpoint, which it takes from the cache, the store or the hub; sign and publish need only the package.",
		Flags: append(recipeFlags(),
			storeFlag("shared store: `URL` s3://bucket/prefix or oci://registry/repository, or a directory (required)"),
			&cli.StringFlag{Name: "from", Usage: "begin with `STAGE`, and take the results of the stages before it from the store; the first if absent"},
			&cli.StringFlag{Name: "until", Usage: "end with `STAGE`; the last if absent"},
			&cli.StringFlag{Name: "after", Usage: "continue from the `RECORD` that an earlier stage printed; the newest of this recipe if absent"},
			cacheFlag(),
			&cli.BoolFlag{Name: "no-verify", Usage: "publish without verifying (same as --set verify.enabled=false)"},
			&cli.BoolFlag{Name: "replace", Usage: "replace packages that llmexport published in the target places"},
			jsonFlag(),
		),
		BashComplete: completeRecipes,
		CustomHelpTemplate: help(
			"llmexport stage qwen3.yaml --until quantize --store s3://bucket/releases",
			"llmexport stage qwen3.yaml --from verify --until verify --store s3://bucket/releases",
			"llmexport stage qwen3.yaml --from publish --store s3://bucket/releases",
		),
		Action: t.stage,
	}
}

// openShared opens the store of --store; nil without that flag. Its error has a hint.
func openShared(c *cli.Context) (*shared.Store, error) {
	ref := c.String("store")
	if ref == "" {
		return nil, nil
	}
	s, err := shared.Open(c.Context, ref)
	if err != nil && stage.Final(err) == "" {
		err = hint(err, "check the address of --store, the network and the credentials; docs/stages.md lists them")
	}
	return s, err
}

func (t *tool) stage(c *cli.Context) error {
	args, err := arguments(c, "RECIPE")
	if err != nil {
		return err
	}
	span := stage.Span{From: c.String("from"), Until: c.String("until"), After: digest.Digest(c.String("after"))}
	runs, err := t.stageRuns(c, args[0])
	if err != nil {
		return err
	}
	if c.String("store") == "" {
		return hint(exit.Usagef("stage needs --store"), "a directory that all machines can reach is enough: --store DIR")
	}
	if span.After != "" && len(runs) > 1 {
		return hint(exit.Usagef("--after is about one package, and the recipe makes %d", len(runs)), "--variant NAME chooses one")
	}
	if err := runs[0].Check(span); err != nil {
		return err
	}
	sh, err := openShared(c)
	if err != nil {
		return err
	}
	st, err := openStore(c, runs[0])
	if err != nil {
		return err
	}
	defer st.Close()
	st.Shared = sh
	holdMemory(runs[0].Limits.Memory)
	t.progress.packages(len(runs))
	var parts []*stage.Part
	var shown []publish.Shown
	var errs []error
	for _, x := range runs {
		x.Store, x.Shared = st, sh
		p, err := t.part(c, x, span)
		if p != nil {
			parts, shown = append(parts, p), append(shown, p.Shown...)
		}
		if err != nil && len(runs) > 1 {
			err = fmt.Errorf("%s: %w", x.Recipe.Name, err)
		}
		if errs = append(errs, err); c.Context.Err() != nil {
			break
		}
	}
	t.progress.stop()
	return t.printParts(c, parts, shown, errors.Join(errs...))
}

// stageRuns loads the packages of a recipe. Only the stages that run check their options: other machines may lack files and rights
// that other stages need.
func (t *tool) stageRuns(c *cli.Context, arg string) ([]*stage.Run, error) {
	r, err := loadRecipe(arg, overrides(c))
	if err != nil {
		return nil, recipes.Join(err, t.moreMistakes(c.Context, r))
	}
	all, err := expand(r, c.String("variant"))
	if err != nil {
		return nil, err
	}
	var runs []*stage.Run
	var errs []error
	for _, v := range all {
		x, err := stage.New(v, t.limits(v))
		errs = append(errs, err)
		if err == nil && c.Bool("replace") {
			errs = append(errs, allowReplace(x))
		}
		runs = append(runs, x)
	}
	return runs, recipes.Join(errs...)
}

// part runs the stages of one package.
func (t *tool) part(c *cli.Context, x *stage.Run, span stage.Span) (*stage.Part, error) {
	defer x.Close()
	defer t.progress.leave(x.Limits.Progress)
	return x.Part(inPackage(c.Context, x), span)
}

// printParts moves the channels of packages that are all published, and prints what was made.
func (t *tool) printParts(c *cli.Context, parts []*stage.Part, shown []publish.Shown, err error) error {
	var moves []publish.Move
	if err == nil {
		moves, err = publish.MoveChannels(c.Context, shown)
	}
	if c.Bool("json") {
		return errors.Join(err, t.printJSON(struct {
			Parts    []*stage.Part  `json:"parts"`
			Channels []publish.Move `json:"channels,omitempty"`
		}{parts, moves}))
	}
	for _, p := range parts {
		if p.Record == "" {
			continue // it failed
		}
		if werr := t.show(func(w io.Writer) error { return printPart(w, p) }); werr != nil {
			return errors.Join(err, werr)
		}
	}
	return errors.Join(err, printMoves(t.stdout, moves))
}

// printPart prints what was made of a package.
func printPart(w io.Writer, p *stage.Part) error {
	span := p.From + " to " + p.Until
	if p.From == p.Until {
		span = p.From
	}
	fmt.Fprintf(w, "%s: %s\nrecord: %s\n", sheet.Plain(p.Package), span, p.Record)
	s := sheet.New("entry", "from", "digest")
	for _, e := range p.Entries {
		s.Row(e.Name, orDash(string(e.From)), string(e.Digest))
	}
	if err := s.Write(w, true); err != nil {
		return err
	}
	if p.Report != "" {
		fmt.Fprintf(w, "report: %s\n", sheet.Plain(p.Report))
	}
	return printReceipts(w, p.Published)
}

// shareStore gives runs the store of --store, which they can do without: they go on when it cannot be reached.
func (t *tool) shareStore(c *cli.Context, use func(*shared.Store)) error {
	s, err := openShared(c)
	if err != nil && stage.Final(err) == "" && c.Context.Err() == nil {
		t.progress.log.Warn().Err(err).Msg("going on without the shared store")
		return nil
	}
	if err == nil && s != nil {
		use(s)
	}
	return err
}
