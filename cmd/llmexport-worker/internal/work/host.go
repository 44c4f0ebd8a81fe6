// Package work holds the activities of a release, and the worker that serves them.
package work

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/shared"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/recipes"
)

// Host is a machine that does the work. Its methods are activities.
type Host struct {
	// Name is the identity of the worker.
	Name string
	// Code and Store are the version of the program and the reference of Shared. Tasks of others are refused.
	Code, Store string
	Shared      *shared.Store
	// Cache is the local store.
	Cache string
	// CacheSize bounds the local store in bytes after a task; 0 does not.
	CacheSize int64
	// Memory in bytes and Threads are those of one task; Memory 0 is the limit of the recipe.
	Memory  int64
	Threads int
	Log     zerolog.Logger

	gate gate
}

// Stage runs a span of stages of a package.
func (h *Host) Stage(ctx context.Context, t flow.Task) (done flow.Done, err error) {
	ctx, p, end := h.begin(ctx, t.Release, t.Until, func(c zerolog.Context) zerolog.Context {
		return c.Str("repository", t.Repository).Str("variant", t.Package)
	})
	defer func() { err = end(err) }()
	if err := h.check(&t.Frame); err != nil {
		return done, err
	}
	st, err := h.open(t.Again)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, h.tidy(ctx, st, err), st.Close()) }()
	run, err := h.run(&t, p)
	if err != nil {
		return done, err
	}
	defer run.Close()
	run.Store, run.Shared = st, h.Shared
	part, err := run.Part(ctx, stage.Span{From: t.From, Until: t.Until, After: t.After, Again: t.Again})
	if err != nil {
		return done, err
	}
	return h.done(part)
}

// open opens the local store, or the one with what was made again on this machine.
func (h *Host) open(again bool) (*pipeline.Directory, error) {
	if !again {
		st, err := pipeline.OpenStore(h.Cache)
		if err == nil {
			st.Shared = h.Shared
		}
		return st, err
	}
	st, err := pipeline.OpenStore(strings.TrimRight(h.Cache, `/\`) + "-again")
	if err == nil {
		st.Shared = withoutPackages{h.Shared}
	}
	return st, err
}

// withoutPackages hides packages, so that a machine makes them itself, with their reports, from the same weights.
type withoutPackages struct{ pipeline.Shared }

func isPackage(name string) bool { return strings.HasPrefix(name, "package-") }

// Fetch implements [pipeline.Shared].
func (w withoutPackages) Fetch(ctx context.Context, name, dir string) (bool, error) {
	if isPackage(name) {
		return false, nil
	}
	return w.Shared.Fetch(ctx, name, dir)
}

// Resume implements [pipeline.Shared].
func (w withoutPackages) Resume(ctx context.Context, name, dir string, more int64) (bool, error) {
	if isPackage(name) {
		return false, nil
	}
	return w.Shared.Resume(ctx, name, dir, more)
}

// Offer implements [pipeline.Shared].
func (w withoutPackages) Offer(ctx context.Context, name, dir string) error {
	if isPackage(name) {
		return nil
	}
	return w.Shared.Offer(ctx, name, dir)
}

// run prepares a package. Its progress goes to the server.
func (h *Host) run(t *flow.Task, p *pulse) (*stage.Run, error) {
	rec, err := recipes.Load([]byte(t.Recipe.Text), t.Recipe.File, stage.Sections(), t.Set...)
	if err != nil {
		return nil, err
	}
	all, err := rec.Expand()
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if v.Name != t.Package {
			continue
		}
		l := pipeline.Limits{Memory: int64(v.Limits.Memory), Threads: h.Threads, Progress: pipeline.NewProgress(p.show)}
		if h.Memory > 0 {
			l.Memory = h.Memory
		}
		run, err := stage.New(v, l)
		if err != nil {
			return nil, err
		}
		for i := range run.Publish {
			if p := &run.Publish[i]; t.Channel != "" && p.ModelScope == "" { // which has no channels
				p.Channel = t.Channel
			}
		}
		return run, nil
	}
	return nil, rec.Errorf("name", "the recipe makes no package called %s", t.Package)
}

// done is the result of a task.
func (h *Host) done(part *stage.Part) (flow.Done, error) {
	d := flow.Done{Record: part.Record, Commit: part.Commit, Manifest: part.Manifest, Timings: part.Timings, Worker: h.Name}
	for _, e := range part.Entries {
		switch e.From {
		case pipeline.Built:
			d.Built++
		case pipeline.Cached:
			d.Found++
		case pipeline.Pulled:
			d.Pulled++
		}
	}
	for _, r := range part.Published {
		d.Places = append(d.Places, r.Ref)
	}
	for _, s := range part.Shown {
		shelf, name, err := s.Channel()
		if err != nil {
			return d, err
		}
		d.Channels = append(d.Channels, flow.Channel{Shelf: shelf, Name: name, Packages: []publish.Shown{s}})
	}
	return d, nil
}

// Move moves a channel to packages that are published.
func (h *Host) Move(ctx context.Context, c flow.Channel) (m publish.Move, err error) {
	ctx, _, end := h.begin(ctx, "", "channel", func(l zerolog.Context) zerolog.Context { return l.Str("channel", c.String()) })
	defer func() { err = end(err) }()
	moves, err := publish.MoveChannels(ctx, c.Packages)
	if err != nil {
		return m, err
	}
	if len(moves) != 1 {
		return m, fmt.Errorf("internal error: %s is %d channels", c, len(moves))
	}
	return moves[0], nil
}

// Withdraw moves a channel back to the release before the one with these packages.
func (h *Host) Withdraw(ctx context.Context, c flow.Channel) (m publish.Move, err error) {
	ctx, _, end := h.begin(ctx, "", "channel", func(l zerolog.Context) zerolog.Context { return l.Str("channel", c.String()) })
	defer func() { err = end(err) }()
	return publish.Withdraw(ctx, c.Packages)
}

// errStopping ends the tasks of a worker that is told to stop: another one takes them up at once.
var errStopping = errors.New("the worker stops")

// fields adds what a task is about to its log lines.
type fields = func(zerolog.Context) zerolog.Context

// begin gives a task its logger, a context that ends with the worker, and a pulse. The function that it returns turns the task's
// error into one for the server, and must be called at the end. The release is that of the workflow if it is empty.
func (h *Host) begin(ctx context.Context, release, stage string, with fields) (context.Context, *pulse, func(error) error) {
	info := activity.GetInfo(ctx)
	if release == "" {
		release = strings.TrimPrefix(info.WorkflowExecution.ID, flow.ID(""))
	}
	inner := with(h.Log.With().Str("release", release)).Int32("attempt", info.Attempt).Logger()
	log := inner.With().Str("stage", stage).Logger() // stages add their own names
	ctx, cancel := context.WithCancelCause(inner.WithContext(ctx))
	stopped := activity.GetWorkerStopChannel(ctx)
	go func() {
		select {
		case <-stopped:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	metrics, p := activity.GetMetricsHandler(ctx), newPulse(ctx, info.HeartbeatTimeout)
	start := time.Now()
	log.Info().Msg("task began")
	return ctx, p, func(err error) error {
		p.stop()
		out := h.failure(ctx, err)
		outcome := "done"
		if err != nil {
			outcome = "failed"
			log.Warn().Err(err).Dur("dur", time.Since(start)).Msg("task failed")
		} else {
			log.Info().Dur("dur", time.Since(start)).Msg("task done")
		}
		m := metrics.WithTags(map[string]string{"activity": info.ActivityType.Name, "queue": info.TaskQueue, "outcome": outcome})
		m.Counter("llmexport_tasks").Inc(1)
		m.Timer("llmexport_task_time").Record(time.Since(start))
		cancel(nil)
		return out
	}
}

// check refuses a task of another version or store. Their queues differ, so this is an error in the set-up.
func (h *Host) check(f *flow.Frame) error {
	if f.Code == h.Code && f.Store == h.Store {
		return nil
	}
	return temporal.NewApplicationError(fmt.Sprintf("this worker is version %s with store %s, and the release wants version %s with store %s",
		h.Code, h.Store, f.Code, f.Store), "")
}

// maxMessage bounds the text of an error in bytes: it is kept in the history.
const maxMessage = 4000

// failure is the error of a task for the server: final ones have a type.
func (h *Host) failure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStopping) {
		return temporal.NewCanceledError()
	}
	var (
		app    *temporal.ApplicationError
		absent *stage.AbsentError
		moved  *publish.MovedOnError
	)
	kind := stage.Final(err)
	switch {
	case errors.As(err, &app):
		return err
	case errors.Is(context.Cause(ctx), errStopping):
		kind, err = "", errStopping
	case errors.As(err, &absent):
		kind = flow.Absent
	case errors.As(err, &moved), errors.Is(err, channel.ErrNoEarlier):
		kind = flow.Superseded
	}
	text := sheet.Escape(err.Error())
	if len(text) > maxMessage {
		text = text[:maxMessage] + "..."
	}
	if kind == "" {
		return temporal.NewApplicationError(text, "")
	}
	return temporal.NewNonRetryableApplicationError(text, kind, nil)
}

// tidy bounds the local store. If the task has found the disk full, everything that is not in use goes, because the shared store
// has it, and this machine takes no new tasks for a while.
func (h *Host) tidy(ctx context.Context, st *pipeline.Directory, err error) error {
	keep := h.CacheSize
	full := err != nil && (errors.As(err, new(*disk.FullError)) || disk.Full(err))
	switch {
	case full:
		keep = 0
		zerolog.Ctx(ctx).Warn().Dur("dur", h.gate.shut(time.Now())).Msg("the disk is full: no new tasks for a while")
	case err == nil:
		h.gate.open()
	}
	if keep == 0 && !full {
		return nil
	}
	gone, err := st.Collect(keep)
	if len(gone) > 0 {
		zerolog.Ctx(ctx).Info().Int("entries", len(gone)).Msg("entries removed from the cache")
	}
	return err
}

// pulse sends heartbeats, with the progress of a task.
type pulse struct {
	ctx  context.Context
	end  chan struct{}
	wait sync.WaitGroup

	mu   sync.Mutex
	last pipeline.State
}

// newPulse sends the progress a few times in the period after which a silent worker counts as lost.
func newPulse(ctx context.Context, lost time.Duration) *pulse {
	p := &pulse{ctx: ctx, end: make(chan struct{})}
	tick := time.NewTicker(max(lost/4, time.Second/10))
	p.wait.Go(func() {
		defer tick.Stop()
		for {
			p.mu.Lock()
			last := p.last
			p.mu.Unlock()
			activity.RecordHeartbeat(ctx, last)
			select {
			case <-tick.C:
			case <-p.end:
				return
			}
		}
	})
	return p
}

func (p *pulse) show(s pipeline.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = s
}

func (p *pulse) stop() {
	close(p.end)
	p.wait.Wait()
}
