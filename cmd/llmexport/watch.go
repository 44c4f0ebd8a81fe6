package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/watch"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func (t *tool) watchCommand() *cli.Command {
	return &cli.Command{
		Name:      "watch",
		Usage:     "run recipes for new revisions of repositories, each once",
		ArgsUsage: "WATCHLIST",
		Description: "WATCHLIST is a YAML file that names repositories and their recipes. Each repository is asked for its newest\n" +
			"commit, and the recipe is run with it as run does, exactly once for each commit, also if this program is killed\n" +
			"in between. Without --once this goes on until it is interrupted. The file beside the list, or the one that the\n" +
			"list names, keeps what was done.",
		Flags: append(recipeFlags()[1:3],
			&cli.BoolFlag{Name: "once", Usage: "poll once, run what is new, and exit with the largest exit code of these runs"},
			&cli.BoolFlag{Name: "dry-run", Usage: "poll once and say what would be run"},
			&cli.BoolFlag{Name: "from-now", Usage: "do not run the revisions that are there when a repository is seen for the first time"},
			&cli.BoolFlag{Name: "retry-failed", Usage: "in the first poll, run again what has failed"},
			cacheFlag(),
			&cli.BoolFlag{Name: "json", Usage: "print every event as a line of JSON"},
		),
		CustomHelpTemplate: help(
			"llmexport watch watch.yaml",
			"llmexport watch watch.yaml --once --json",
			"llmexport watch watch.yaml --dry-run",
		),
		Action: t.watch,
	}
}

// watchError ends a poll in which something failed, whose messages are printed.
type watchError struct{ code int }

func (e *watchError) Error() string { return "not everything went well, see the messages above" }

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
	// Who cannot be told what happens is gone.
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

// stateHint says what to do about a damaged state file.
func stateHint(list *watch.List, err error) error {
	if errors.Is(err, tensor.ErrCorrupt) {
		return hint(err, fmt.Sprintf("without %s everything is seen for the first time; with --from-now nothing of it is run again", list.State))
	}
	return err
}

// entryTasks loads the recipe of an entry for a commit.
func (t *tool) entryTasks(c *cli.Context, e watch.Entry, commit string) ([]*stage.Run, error) {
	return t.tasksOf(c.Context, e.Source(), append(e.Overrides(commit), overrides(c)...), "")
}

// checkList loads all recipes before the hub is asked, and refuses two that publish into one place.
func (t *tool) checkList(c *cli.Context, list *watch.List) error {
	taken := map[string]int{}
	for i, e := range list.Entries {
		tasks, err := t.entryTasks(c, e, e.Revision)
		if err != nil {
			return fmt.Errorf("%s: %w", e, err)
		}
		for _, x := range tasks {
			places, err := x.Publish.Places(x)
			if err != nil {
				return fmt.Errorf("%s: %w", e, err)
			}
			for _, p := range places {
				if j, ok := taken[p]; ok && j != i {
					return hint(usagef("%s and %s would both go to %s", list.Entries[j], e, p), `set: ["publish=[{dir: DIR}]"] gives an entry a place of its own`)
				}
				taken[p] = i
			}
		}
	}
	return nil
}

// pollEntry asks the hub that the recipe would fetch from.
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
	results, err := t.makeAll(c, tasks)
	if err != nil {
		return watch.Result{Packages: results, Err: err, ExitCode: exitCode(err)}
	}
	return watch.Result{Packages: results}
}

// printEvent writes a line of JSON, or a message.
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
