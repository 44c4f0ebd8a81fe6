package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/pipeline/watch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func (t *tool) watchCommand() *cli.Command {
	return &cli.Command{
		Name:      "watch",
		Usage:     "run recipes for new revisions of repositories, each once",
		ArgsUsage: "WATCHLIST",
		Description: "WATCHLIST is a YAML file that lists repositories and their recipes. Each repository is polled for its newest commit,\n" +
			"and its recipe is run exactly once for each commit, even if this program is killed in between. Without --once, it\n" +
			"runs until it is interrupted. The file next to the list, or the one that the list names, records the finished runs,\n" +
			"which are not repeated.",
		Flags: append(recipeFlags()[1:3],
			&cli.BoolFlag{Name: "once", Usage: "poll once, run what is new, and exit with the largest exit code of these runs"},
			&cli.BoolFlag{Name: "dry-run", Usage: "poll once and show what would be run"},
			&cli.BoolFlag{Name: "from-now", Usage: "skip the revision that a repository has when it is first polled"},
			&cli.BoolFlag{Name: "retry-failed", Usage: "in the first poll, retry failed runs"},
			cacheFlag(),
			&cli.BoolFlag{Name: "json", Usage: "print each event as a line of JSON"},
		),
		CustomHelpTemplate: help(
			"llmexport watch watch.yaml",
			"llmexport watch watch.yaml --once --json",
			"llmexport watch watch.yaml --dry-run",
		),
		Action: t.watch,
	}
}

// watchError ends a poll with failures, which have been printed already.
type watchError struct{ code int }

func (e *watchError) Error() string { return "some repositories failed; see the messages above" }

func (t *tool) watch(c *cli.Context) error {
	args, err := arguments(c, "WATCHLIST")
	if err != nil {
		return err
	}
	list, err := watch.ReadList(args[0])
	if err != nil {
		return err
	}
	if err := t.checkList(c, list); err != nil {
		return err
	}
	// Stop when events can no longer be printed.
	ctx, stop := context.WithCancelCause(c.Context)
	defer stop(nil)
	c.Context = ctx
	w := &watch.Watcher{
		List:        list,
		FromNow:     c.Bool("from-now"),
		RetryFailed: c.Bool("retry-failed"),
		DryRun:      c.Bool("dry-run"),
		Poll: func(ctx context.Context, e watch.Entry, etag string) (hub.Tip, error) {
			return t.pollEntry(ctx, c, e, etag)
		},
		Run: func(_ context.Context, e watch.Entry, commit string) watch.Result {
			return t.runEntry(c, e, commit)
		},
		Event: func(ev watch.Event) {
			if err := t.printEvent(c, ev); err != nil {
				stop(err)
			}
		},
	}
	if !c.Bool("once") && !w.DryRun {
		return stateHint(list, w.Loop(ctx))
	}
	code, err := w.Once(ctx)
	switch {
	case err != nil:
		return stateHint(list, err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case code != 0:
		return &watchError{code}
	}
	return nil
}

// stateHint adds a hint about a damaged state file.
func stateHint(list *watch.List, err error) error {
	if errors.Is(err, tensor.ErrCorrupt) {
		return hint(err, fmt.Sprintf("remove %s to start over; with --from-now, current revisions are not run again", list.State))
	}
	return err
}

// entryTasks loads the recipe of an entry for a commit.
func (t *tool) entryTasks(c *cli.Context, e watch.Entry, commit string) ([]*stage.Run, error) {
	return t.tasksOf(c.Context, e.Source(), append(e.Overrides(commit), overrides(c)...), "")
}

// checkList loads all recipes before the first poll, and rejects two that publish to the same place.
func (t *tool) checkList(c *cli.Context, list *watch.List) error {
	taken := map[string]int{}
	for i, e := range list.Entries {
		tasks, err := t.entryTasks(c, e, e.Revision)
		if err != nil {
			return fmt.Errorf("%s: %w", e, err)
		}
		for _, x := range tasks {
			places, err := x.Publish.Places(c.Context, x)
			if err != nil {
				return fmt.Errorf("%s: %w", e, err)
			}
			for _, p := range places {
				if j, ok := taken[p]; ok && j != i {
					return hint(exit.Usagef("%s and %s would both publish to %s", list.Entries[j], e, p), `set: ["publish=[{dir: DIR}]"] gives an entry its own place`)
				}
				taken[p] = i
			}
		}
	}
	return nil
}

// pollEntry polls the hub that the recipe fetches from.
func (t *tool) pollEntry(ctx context.Context, c *cli.Context, e watch.Entry, etag string) (hub.Tip, error) {
	tasks, err := t.entryTasks(c, e, e.Revision)
	if err != nil {
		return hub.Tip{}, err
	}
	o, err := hub.OptionsFromEnv()
	if err != nil {
		return hub.Tip{}, err
	}
	o.Endpoint = cmp.Or(tasks[0].Fetch.Endpoint, o.Endpoint)
	return hub.Head(ctx, hub.Ref{Repo: e.Repo, Revision: e.Revision}, etag, o)
}

// runEntry makes the packages of an entry from a commit.
func (t *tool) runEntry(c *cli.Context, e watch.Entry, commit string) watch.Result {
	tasks, err := t.entryTasks(c, e, commit)
	if err != nil {
		return watch.Result{Err: err, ExitCode: exitCode(err)}
	}
	results, _, err := t.makeAll(c, tasks)
	if err != nil {
		return watch.Result{Packages: results, Err: err, ExitCode: exitCode(err)}
	}
	return watch.Result{Packages: results}
}

// printEvent prints an event as a line of JSON or as a message.
func (t *tool) printEvent(c *cli.Context, ev watch.Event) error {
	if c.Bool("json") {
		return t.encode(ev, "")
	}
	log := zerolog.Ctx(c.Context)
	m := log.Info()
	switch ev.Kind {
	case watch.Failed:
		m = log.Error()
	case watch.Problem:
		m = log.Warn()
	}
	if ev.Kind == watch.Polled {
		m.Int("asked", ev.Asked).Int("unchanged", ev.Unchanged).Int("waiting", ev.Waiting).Msg(ev.Kind)
		return nil
	}
	m = m.Str("model", ev.Repo+"@"+ev.Revision)
	if ev.Commit != "" {
		m = m.Str("commit", ev.Commit).Str("recipe", ev.Recipe)
	}
	if ev.Resumed {
		m = m.Bool("resumed", true)
	}
	if ev.ExitCode != 0 {
		m = m.Int("code", ev.ExitCode)
	}
	if !ev.RetryAfter.IsZero() {
		m = m.Time("retry_after", ev.RetryAfter)
	}
	if ev.Err != nil {
		m = m.Err(ev.Err)
		if h := hintFor(ev.Err); h != "" {
			m = m.Str("hint", h)
		}
	}
	m.Msg(ev.Kind)
	return nil
}
