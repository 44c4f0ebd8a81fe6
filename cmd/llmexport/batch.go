package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/shared"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/recipes"
)

// batch is the packages of a recipe, several of which may be made at the same time. They share the limits, and through the
// store everything that does not depend on the variant.
type batch struct {
	t     *tool
	tasks []*stage.Run
	whole []pipeline.Limits // of each task if it is made alone
	quiet bool              // nothing is printed

	mu      sync.Mutex
	made    []*made // by task; nil until it has ended
	printed int     // tasks whose outcomes are printed; they are in the order of the recipe
	shown   int     // outcomes among them
	failed  error   // of printing
}

// made is how a task ended.
type made struct {
	outcome
	err error
}

// makeAll makes the packages of a recipe, and prints their results unless JSON is wanted. A package that fails does not stop
// the others. Channels move once all packages are published.
func (t *tool) makeAll(c *cli.Context, tasks []*stage.Run) ([]outcome, []publish.Move, error) {
	st, err := openStore(c, tasks[0])
	if err != nil {
		return nil, nil, err
	}
	defer st.Close()
	err = t.shareStore(c, func(s *shared.Store) {
		st.Shared = s
		for _, x := range tasks {
			x.Shared = s
		}
	})
	if err != nil {
		return nil, nil, err
	}
	b := &batch{t: t, tasks: tasks, made: make([]*made, len(tasks)), quiet: c.Bool("json")}
	memory := int64(0)
	for _, x := range tasks {
		x.Store, x.DryRun = st, c.Bool("dry-run")
		if c.Bool("replace") {
			if err := allowReplace(x); err != nil {
				return nil, nil, err
			}
		}
		b.whole = append(b.whole, x.Limits)
		memory = max(memory, x.Limits.Memory)
	}
	holdMemory(memory)
	t.progress.packages(len(tasks))
	b.run(c.Context)
	t.progress.stop()
	results, err := b.results(c.Context)
	if err != nil {
		return results, nil, err
	}
	var shown []publish.Shown
	for _, x := range tasks {
		shown = append(shown, x.Shown...)
	}
	moves, err := publish.MoveChannels(c.Context, shown)
	return results, moves, err
}

// run makes all packages.
func (b *batch) run(ctx context.Context) {
	n := together(b.tasks)
	if n > 1 {
		b.lead(ctx)
		for _, x := range b.tasks {
			x.Limits.Threads, x.Limits.Memory = max(1, x.Limits.Threads/n), x.Limits.Memory/int64(n)
		}
		zerolog.Ctx(ctx).Info().Int("packages", len(b.tasks)).Int("parallel", n).Int("threads_each", b.tasks[0].Limits.Threads).
			Int64("memory_each", b.tasks[0].Limits.Memory).Msg("making packages at the same time")
	}
	var g errgroup.Group
	g.SetLimit(n)
	for i := range b.tasks {
		if b.made[i] == nil {
			g.Go(func() error { b.make(ctx, i, n > 1); return nil })
		}
	}
	_ = g.Wait()
	for i, x := range b.tasks { // those for which a share of the memory is too little
		if b.made[i] == nil && ctx.Err() == nil {
			x.Limits = b.whole[i]
			b.make(ctx, i, false)
		}
	}
}

// threadsEach is the number of threads from which another package at the same time gets its own. It was chosen, not measured:
// stages that read, write or wait for a place use fewer.
const threadsEach = 4

// together is the number of packages to make at the same time.
func together(tasks []*stage.Run) int {
	l, limits := tasks[0].Recipe.Limits, tasks[0].Limits
	if l.Parallel > 0 {
		return min(l.Parallel, len(tasks), limits.Threads)
	}
	return max(1, min(len(tasks), limits.Threads/threadsEach, int(limits.Memory/int64(recipes.DefaultLimits().Memory))))
}

// lead makes what the packages share, with all threads and memory, before they are made at the same time.
func (b *batch) lead(ctx context.Context) {
	i, until := 0, b.tasks[0].Fetch.String()
	if k := slices.IndexFunc(b.tasks, func(x *stage.Run) bool { _, skip := x.Calibrate.Skip(x); return !skip }); k >= 0 {
		i, until = k, b.tasks[k].Calibrate.String()
	}
	if k := slices.IndexFunc(b.tasks, func(x *stage.Run) bool { return x.Quantize.Budget != nil }); k >= 0 {
		i, until = k, b.tasks[k].Allocate.String()
	}
	x := b.tasks[i]
	if _, err := x.Execute(inPackage(ctx, x), until); err != nil {
		b.end(i, &made{outcome{Name: x.Recipe.Name}, err})
	}
	b.t.progress.leave(x.Limits.Progress)
	x.Close()
}

// inPackage adds the name of a package to the log.
func inPackage(ctx context.Context, x *stage.Run) context.Context {
	log := zerolog.Ctx(ctx).With().Str("package", x.Recipe.Name).Logger()
	return log.WithContext(ctx)
}

// make makes one package. If it has a share of the memory and that is too little, it does not end.
func (b *batch) make(ctx context.Context, i int, share bool) {
	if ctx.Err() != nil {
		return
	}
	o, err := b.t.execute(inPackage(ctx, b.tasks[i]), b.tasks[i])
	if short := (*stage.MemoryLimitError)(nil); share && (errors.As(err, &short) || errors.As(err, new(*assemble.MemoryError))) {
		zerolog.Ctx(ctx).Info().Str("package", o.Name).Msg("a share of the memory is too little: it is made alone after the others")
		return
	}
	b.end(i, &made{o, err})
}

// end records how a task ended, and prints the outcomes of all tasks before the first that is still running.
func (b *batch) end(i int, m *made) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made[i] = m
	if m.err != nil {
		m.Error = m.err.Error()
	}
	for ; b.printed < len(b.made) && b.made[b.printed] != nil; b.printed++ {
		if o := b.made[b.printed].outcome; !b.quiet && o.Report != nil && b.failed == nil {
			b.failed = b.t.printOutcome(o, b.shown == 0)
			b.shown++
		}
	}
}

// results returns the outcomes of the tasks that began, and their errors.
func (b *batch) results(ctx context.Context) (list []outcome, err error) {
	errs := []error{b.failed}
	shown := false
	for i, m := range b.made {
		shown = shown || len(b.tasks[i].Shown) > 0
		if m == nil {
			continue
		}
		list = append(list, m.outcome)
		switch {
		case m.err != nil && len(b.tasks) > 1:
			errs = append(errs, fmt.Errorf("%s: %w", m.Name, m.err))
		case m.err != nil:
			errs = append(errs, m.err)
		}
	}
	if ctx.Err() != nil && errors.Join(errs...) == nil {
		errs = append(errs, context.Cause(ctx))
	}
	if err = errors.Join(errs...); err != nil && shown {
		zerolog.Ctx(ctx).Warn().Msg("channels stay where they are, because not every package was published")
	}
	return list, err
}
