package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/fleet"
	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/status"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish"
)

func (t *tool) releaseCommand() *cli.Command {
	jsonFlag := &cli.BoolFlag{Name: "json", Usage: "print JSON"}
	sub := func(name, arguments, use, more string, action cli.ActionFunc, flags ...cli.Flag) *cli.Command {
		return &cli.Command{
			Name: name, ArgsUsage: arguments, Usage: use, Description: more, Action: action, Flags: flags, OnUsageError: usage,
		}
	}
	with := func(more ...cli.Flag) []cli.Flag { return append(serverFlags(), more...) }
	const either = "RELEASE is the fleet file, or the name in it."
	return &cli.Command{
		Name: "release", Usage: "plan, start and follow a release", OnUsageError: usage,
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return exit.Usagef("unknown command release %q; llmexport-worker release help lists them", c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
		Subcommands: []*cli.Command{
			sub("plan", "FLEET", "predict time, bytes and cost",
				"Reads configuration and headers of every model, but no weights. The speed is that of this machine.", t.releasePlan, jsonFlag),
			sub("start", "FLEET", "start a release",
				"A release that has ended may be started again: what is finished is found in the store.", t.releaseStart,
				with(&cli.BoolFlag{Name: "wait", Usage: "wait for the end; the exit code is that of the worst failure"}, jsonFlag)...),
			sub("status", "RELEASE", "show how far a release is", either, onRelease(t.releaseStatus),
				with(&cli.BoolFlag{Name: "all", Usage: "list all packages"},
					&cli.StringFlag{Name: "html", Usage: "write a page to `FILE`"}, jsonFlag)...),
			sub("cancel", "RELEASE", "cancel a release",
				either+" What is published stays; channels of unfinished parts do not move.", onRelease(t.releaseCancel),
				with(&cli.BoolFlag{Name: "wait", Usage: "wait until everything has stopped"})...),
			sub("rollback", "RELEASE", "move the channels of a release back to the release before",
				either+" A channel that was moved again since stays. Workers of the queue publish do the work.",
				onRelease(t.releaseRollback), with(jsonFlag)...),
			sub("schema", "", "print the JSON schema of fleet files", "", t.releaseSchema),
		},
	}
}

func (t *tool) releaseSchema(c *cli.Context) error {
	if _, err := arguments(c); err != nil {
		return err
	}
	b, err := fleet.Schema()
	if err == nil {
		_, err = t.stdout.Write(b)
	}
	return err
}

// resolve reads a fleet file and everything that it names.
func resolve(c *cli.Context) (*fleet.Resolved, error) {
	args, err := arguments(c, "FLEET")
	if err != nil {
		return nil, err
	}
	f, err := fleet.Read(args[0])
	if err != nil {
		return nil, err
	}
	return f.Resolve(c.Context, pipeline.Limits{Threads: runtime.GOMAXPROCS(0)})
}

func (t *tool) releasePlan(c *cli.Context) error {
	r, err := resolve(c)
	if err != nil {
		return err
	}
	log := zerolog.Ctx(c.Context)
	e, err := r.Estimate(c.Context, func(done, total int) {
		if done%25 == 0 {
			log.Info().Int("done", done).Int("of", total).Msg("repositories read")
		}
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return t.printJSON(e)
	}
	return e.Write(t.stdout)
}

func (t *tool) releaseStart(c *cli.Context) error {
	r, err := resolve(c)
	if err != nil {
		return err
	}
	cl, err := dial(c, "", nil)
	if err != nil {
		return err
	}
	defer cl.Close()
	p := r.Plan
	run, err := cl.ExecuteWorkflow(c.Context, client.StartWorkflowOptions{
		ID: flow.ID(p.Release), TaskQueue: flow.WorkflowQueue(p.Code, p.Store),
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE, WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, flow.ReleaseWorkflow, p)
	if errors.As(err, new(*serviceerror.WorkflowExecutionAlreadyStarted)) {
		return fmt.Errorf("release %s runs already; release status shows it, release cancel ends it", p.Release)
	}
	if err != nil {
		return err
	}
	packages := 0
	for _, x := range p.Repositories {
		packages += len(x.Packages)
	}
	if !c.Bool("json") {
		fmt.Fprintf(t.stdout, "release %s started: %d packages of %d repositories\n", p.Release, packages, len(p.Repositories))
	}
	if !c.Bool("wait") {
		return t.printStarted(c, p, run.GetRunID(), packages)
	}
	s := flow.Summary{}
	if err := run.Get(c.Context, &s); err != nil {
		return ended(c.Context, p.Release, err)
	}
	if c.Bool("json") {
		return t.printJSON(s)
	}
	_, err = fmt.Fprintf(t.stdout, "release %s is complete: %d packages, %d channels moved\n", p.Release, s.Complete, s.Channels)
	return err
}

func (t *tool) printStarted(c *cli.Context, p *flow.Plan, run string, packages int) error {
	if !c.Bool("json") {
		return nil
	}
	return t.printJSON(struct {
		Release      string   `json:"release"`
		Run          string   `json:"run"`
		Packages     int      `json:"packages"`
		Repositories int      `json:"repositories"`
		Queues       []string `json:"queues"`
	}{p.Release, run, packages, len(p.Repositories), p.TaskQueues()})
}

// ended is the error of a release that ended without all of its packages.
func ended(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if temporal.IsCanceledError(err) {
		return &endedError{text: "release " + name + " was cancelled"}
	}
	app := (*temporal.ApplicationError)(nil)
	if errors.As(err, &app) {
		e := &endedError{text: "release " + name + ": " + app.Message()}
		if slices.Contains(flow.Final(), app.Type()) {
			e.kind = app.Type()
		}
		return e
	}
	return err
}

// releaseName returns the name of a release: that in a fleet file, or the argument itself.
func releaseName(c *cli.Context) (string, error) {
	args, err := arguments(c, "RELEASE")
	if err != nil {
		return "", err
	}
	ext := filepath.Ext(args[0])
	if _, err := os.Stat(args[0]); err != nil && ext != ".yaml" && ext != ".yml" {
		return args[0], nil
	}
	f, err := fleet.Read(args[0])
	if err != nil {
		return "", err
	}
	return f.Name, nil
}

// onRelease is the action of a command about a release that the server knows.
func onRelease(do func(c *cli.Context, cl client.Client, name string) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		name, err := releaseName(c)
		if err != nil {
			return err
		}
		cl, err := dial(c, "", nil)
		if err != nil {
			return err
		}
		defer cl.Close()
		return do(c, cl, name)
	}
}

func (t *tool) releaseStatus(c *cli.Context, cl client.Client, name string) error {
	s, err := status.Collect(c.Context, cl, c.String("namespace"), name)
	if err != nil {
		return err
	}
	if file := c.String("html"); file != "" {
		var b strings.Builder
		if err := s.WritePage(&b); err != nil {
			return err
		}
		if err := pipeline.WriteFile(file, []byte(b.String())); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return t.printJSON(s)
	}
	return s.Write(t.stdout, c.Bool("all"))
}

func (t *tool) releaseCancel(c *cli.Context, cl client.Client, name string) error {
	d, err := cl.DescribeWorkflowExecution(c.Context, flow.ID(name), "")
	if err == nil && d.GetWorkflowExecutionInfo().GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		err = cl.CancelWorkflow(c.Context, flow.ID(name), "")
	} else if err == nil || errors.As(err, new(*serviceerror.NotFound)) {
		return fmt.Errorf("release %s is not running", name)
	}
	if err != nil {
		return err
	}
	if c.Bool("wait") {
		if err := cl.GetWorkflow(c.Context, flow.ID(name), "").Get(c.Context, nil); err != nil && !temporal.IsCanceledError(err) {
			return ended(c.Context, name, err)
		}
		_, err = fmt.Fprintf(t.stdout, "release %s has ended\n", sheet.Plain(name))
		return err
	}
	_, err = fmt.Fprintf(t.stdout, "release %s is being cancelled\n", sheet.Plain(name))
	return err
}

// chunk is the number of channels of one workflow of a rollback.
const chunk = 100

func (t *tool) releaseRollback(c *cli.Context, cl client.Client, name string) error {
	s, err := status.Collect(c.Context, cl, c.String("namespace"), name)
	if err != nil {
		return err
	}
	if s.Ended.IsZero() {
		return fmt.Errorf("release %s still runs; cancel it first", name)
	}
	list, err := status.Moved(c.Context, cl, name)
	if err != nil {
		return err
	}
	var moves []publish.Move
	var errs []error
	for i := 0; i*chunk < len(list); i++ {
		in := flow.RollbackInput{Frame: s.Frame, Channels: list[i*chunk : min((i+1)*chunk, len(list))]}
		run, err := cl.ExecuteWorkflow(c.Context, client.StartWorkflowOptions{
			ID: fmt.Sprintf("rollback/%s/%d", name, i), TaskQueue: flow.WorkflowQueue(s.Code, s.Store),
			WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		}, flow.RollbackWorkflow, in)
		if err != nil {
			return err
		}
		out := flow.RolledBack{}
		if err := run.Get(c.Context, &out); err != nil {
			return err
		}
		moves = append(moves, out.Moves...)
		for _, text := range out.Errors {
			errs = append(errs, errors.New(text))
		}
	}
	if c.Bool("json") {
		err = t.printJSON(struct {
			Release string         `json:"release"`
			Moves   []publish.Move `json:"moves"`
		}{name, append([]publish.Move{}, moves...)})
	} else {
		err = printMoves(t.stdout, name, moves)
	}
	return errors.Join(append(errs, err)...)
}

func printMoves(w io.Writer, name string, moves []publish.Move) error {
	if len(moves) == 0 {
		_, err := fmt.Fprintf(w, "no channel of release %s moved back\n", sheet.Plain(name))
		return err
	}
	s := sheet.New("channel", "place", "names now")
	for _, m := range moves {
		s.Row(m.Channel, m.Place, strings.Join(m.Packages, ", "))
	}
	return s.Write(w, true)
}

func (t *tool) printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = t.stdout.Write(append([]byte(sheet.EscapeJSON(string(b))), '\n'))
	return err
}
