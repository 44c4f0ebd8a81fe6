package flow

import (
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/llmexport/llmexport/publish"
)

// Summary is the result of a release.
type Summary struct {
	Packages int `json:"packages"`
	Complete int `json:"complete"`
	Channels int `json:"channels"`
}

const (
	// rollOver is the number of repositories of one history: some 12 events each, of the 51,200 that a history may have.
	rollOver = 1000
	// page is the number of repositories or channels in the answer to a query, which is limited to two megabytes.
	page = 100
)

// releaseRun is a release at work.
type releaseRun struct {
	*Plan
	progress
	open, started int
	stop          workflow.CancelFunc // of everything that is not finished
	moving        workflow.WaitGroup  // of channels
}

// RunRelease runs the workflows of repositories, at most Parallel at the same time, and moves the channels of a part once the
// repositories of the part are finished.
func RunRelease(ctx workflow.Context, p Plan) (Summary, error) {
	r := &releaseRun{Plan: &p, progress: progress{State: *p.newState(workflow.Now(ctx)), Channels: map[string][]Channel{}}}
	if p.Carried != nil {
		done, err := p.Carried.unpack()
		if err != nil {
			return Summary{}, err
		}
		r.progress = *done
	}
	if err := r.answer(ctx); err != nil {
		return Summary{}, err
	}
	rest, _ := workflow.NewDisconnectedContext(ctx) // waits for what a cancellation ends
	r.moving = workflow.NewWaitGroup(rest)
	if r.repositories(ctx, rest) && ctx.Err() == nil {
		carried, err := r.pack()
		if err != nil {
			return Summary{}, err
		}
		next := p
		next.Carried = carried
		return Summary{}, workflow.NewContinueAsNewError(ctx, ReleaseWorkflow, next)
	}
	return r.summary(ctx)
}

// answer answers queries, page by page.
func (r *releaseRun) answer(ctx workflow.Context) error {
	return errors.Join(
		workflow.SetQueryHandler(ctx, StateQuery, func(from int) (State, error) {
			s := r.State
			s.Repositories = part(s.Repositories, from)
			return s, nil
		}),
		workflow.SetQueryHandler(ctx, ChannelsQuery, func(from int) ([]Channel, error) { return part(r.Moved, from), nil }),
	)
}

// part is a page of a list.
func part[T any](list []T, from int) []T {
	from = min(max(from, 0), len(list))
	return list[from:min(from+page, len(list))]
}

// repositories runs the repositories that are left. It reports whether the rest is for another history.
func (r *releaseRun) repositories(ctx, rest workflow.Context) (more bool) {
	work, stop := workflow.WithCancel(ctx)
	r.stop = stop
	defer stop()
	most := r.RollOver
	if most == 0 {
		most = rollOver
	}
	for i := range r.State.Repositories {
		if r.State.Repositories[i].Phase != Waiting {
			continue
		}
		_ = workflow.Await(work, func() bool { return r.open < r.Parallel || work.Err() != nil })
		if work.Err() != nil {
			break
		}
		if r.started == most {
			more = true
			break
		}
		r.State.Repositories[i].Phase = Running
		r.open++
		r.started++
		workflow.Go(work, func(work workflow.Context) {
			r.repository(work, i)
			r.open--
			r.finish(rest, ctx, r.State.Repositories[i].Part)
		})
	}
	_ = workflow.Await(rest, func() bool { return r.open == 0 })
	r.moving.Wait(rest)
	return more
}

// repository runs a repository to its end.
func (r *releaseRun) repository(ctx workflow.Context, i int) {
	state, repo := &r.State.Repositories[i], &r.Plan.Repositories[i]
	in := RepositoryInput{Frame: r.of(repo), Repository: *repo, Recipe: r.Recipes[repo.Recipe]}
	var out RepositoryResult
	err := child(ctx, ID(r.Release, repo.ID), RepositoryWorkflow, in).Get(ctx, &out)
	switch {
	case err == nil:
		*state = out.State
		r.Channels[repo.Part] = append(r.Channels[repo.Part], out.Channels...)
	case temporal.IsCanceledError(err):
		state.packages(Cancelled, "", "", "")
		state.settle()
	default: // the workflow was terminated
		state.packages(Failed, "", TextOf(err), KindOf(err))
		state.settle()
	}
	if state.Phase == Failed && r.OnFailure == Stop {
		r.stop()
	}
}

const unfinished = "channels stay: the release did not finish"

// finish moves the channels of a part if its last repository has ended. What a cancelled release has published stays without
// channels.
func (r *releaseRun) finish(rest, ctx workflow.Context, name string) {
	total, failed, undone := 0, 0, 0
	for _, x := range r.State.Repositories {
		if x.Part != name {
			continue
		}
		if x.Phase == Waiting || x.Phase == Running {
			return
		}
		for _, p := range x.Packages {
			total++
			switch p.Phase {
			case Failed:
				failed++
			case Cancelled:
				undone++
			}
		}
	}
	i := slices.IndexFunc(r.State.Parts, func(p PartState) bool { return p.Part == name })
	state := &r.State.Parts[i]
	switch {
	case undone > 0 || ctx.Err() != nil:
		state.Phase, state.Error = Cancelled, unfinished
		return
	case failed > 0 && r.OnFailure != Skip:
		state.Phase, state.Error = Failed, fmt.Sprintf("channels stay: %d of %d packages failed", failed, total)
		return
	}
	state.Phase = Running
	r.moving.Add(1)
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer r.moving.Done()
		r.move(ctx, state, grouped(r.Channels[name]))
		delete(r.Channels, name)
	})
}

// grouped joins the packages that share a channel.
func grouped(list []Channel) (groups []Channel) {
	for _, c := range list {
		i := slices.IndexFunc(groups, func(g Channel) bool { return g.Shelf == c.Shelf && g.Name == c.Name })
		if i < 0 {
			groups = append(groups, Channel{Shelf: c.Shelf, Name: c.Name, Packages: slices.Clone(c.Packages)})
			continue
		}
		groups[i].Packages = append(groups[i].Packages, c.Packages...)
	}
	return groups
}

// move moves the channels of a part.
func (r *releaseRun) move(ctx workflow.Context, state *PartState, groups []Channel) {
	var errs []error
	wg := workflow.NewWaitGroup(ctx)
	for i, g := range groups {
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			var m publish.Move
			id := fmt.Sprintf("channel %s %d", state.Part, i)
			if err := r.Frame.activity(ctx, Publish, id, Move, g).Get(ctx, &m); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s", g, TextOf(err)))
				return
			}
			state.Channels = append(state.Channels, m)
			r.Moved = append(r.Moved, g)
		})
	}
	wg.Wait(ctx)
	state.Phase = Complete
	if err := errors.Join(errs...); err != nil {
		state.Phase, state.Error = Failed, err.Error()
	}
}

// summary ends the release. A release that is not whole is an error, whose type is that of the worst failure.
func (r *releaseRun) summary(ctx workflow.Context) (Summary, error) {
	s := Summary{Complete: r.State.Count(Complete), Channels: len(r.Moved)}
	for i := range r.State.Repositories {
		x := &r.State.Repositories[i]
		s.Packages += len(x.Packages)
		if x.Phase == Waiting {
			x.packages(Cancelled, "", "", "")
			x.settle()
		}
	}
	for i := range r.State.Parts {
		if p := &r.State.Parts[i]; p.Phase == Waiting {
			p.Phase, p.Error = Cancelled, unfinished
		}
	}
	if ctx.Err() != nil {
		r.State.Phase = Cancelled
		return s, ctx.Err()
	}
	stays := slices.ContainsFunc(r.State.Parts, func(p PartState) bool { return p.Phase == Failed })
	if r.State.Phase = Complete; s.Complete < s.Packages || stays {
		r.State.Phase = Failed
		text := fmt.Sprintf("%d of %d packages are published", s.Complete, s.Packages)
		if s.Complete == s.Packages {
			text += ", but not all channels moved"
		}
		return s, temporal.NewNonRetryableApplicationError(text, r.worst(), nil)
	}
	return s, nil
}

// worst is the type of the failures, of several the one that a person has to look at first.
func (r *releaseRun) worst() string {
	for _, kind := range []string{Verdict, Mistake, Unsupported} {
		for _, x := range r.State.Repositories {
			if slices.ContainsFunc(x.Packages, func(p PackageState) bool { return p.Kind == kind }) {
				return kind
			}
		}
	}
	return "failed"
}

// RollbackInput is the input of the workflow that takes back the channels of a release.
type RollbackInput struct {
	Frame
	Channels []Channel `json:"channels"`
}

// RolledBack is the result of a rollback.
type RolledBack struct {
	Moves []publish.Move `json:"moves"`
	// Errors tell which channels stay, and why.
	Errors []string `json:"errors,omitempty"`
}

// RunRollback moves channels back to the release before. A channel that somebody else has moved since stays.
func RunRollback(ctx workflow.Context, in RollbackInput) (RolledBack, error) {
	var out RolledBack
	wg := workflow.NewWaitGroup(ctx)
	for i, c := range in.Channels {
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			var m publish.Move
			if err := in.activity(ctx, Publish, fmt.Sprintf("channel %d", i), Withdraw, c).Get(ctx, &m); err != nil {
				out.Errors = append(out.Errors, TextOf(err))
				return
			}
			out.Moves = append(out.Moves, m)
		})
	}
	wg.Wait(ctx)
	return out, ctx.Err()
}
