package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/hub"
)

const (
	polls      = 4              // at once
	firstPause = time.Minute    // before a run that the network ended is tried again; it doubles
	maxPause   = 6 * time.Hour  // of these
	maxAsked   = 24 * time.Hour // that a hub can make us wait
)

// A Watcher looks for new revisions and has them run. Fields are not changed while it works.
type Watcher struct {
	List *List
	// Poll asks for the commit of an entry's revision, as [hub.Head] does. It is called for several entries at once.
	Poll func(ctx context.Context, e Entry, etag string) (hub.Tip, error)
	// Run makes the packages of an entry from a commit.
	Run func(ctx context.Context, e Entry, commit string) Result
	// Event receives all events, one after the other.
	Event func(Event)

	// FromNow leaves the commits that are there at first sight.
	FromNow bool
	// RetryFailed repeats failed runs in the first poll.
	RetryFailed bool
	// DryRun runs nothing, writes nothing and needs no lock.
	DryRun bool
}

// Result is how a run ended.
type Result struct {
	// Packages describes the packages that were made, for Event.
	Packages any
	// Err is the error of a failed run, and ExitCode the exit code that it stands for.
	Err      error
	ExitCode int
}

// Once polls every entry and runs new revisions. The result is the largest exit code of these runs, 0 if there was
// nothing or all went well; an entry whose repository cannot be asked counts as 1, if the reason is new or may pass. The
// error is one that keeps the watcher from working.
func (w *Watcher) Once(ctx context.Context) (worst int, err error) {
	err = w.with(func(s *state) error {
		worst, err = w.round(ctx, s, w.RetryFailed)
		return err
	})
	return worst, err
}

// Loop repeats Once until ctx ends, whose cause it returns, or the state cannot be kept.
func (w *Watcher) Loop(ctx context.Context) error {
	return w.with(func(s *state) error {
		for retry := w.RetryFailed; ; retry = false {
			if _, err := w.round(ctx, s, retry); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(w.pause(s)):
			}
		}
	})
}

// with calls f with the state, and with the lock held.
func (w *Watcher) with(f func(*state) error) error {
	path := w.List.State
	if !w.DryRun {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return fmt.Errorf("state file: %w", err)
		}
		lock := flock.New(path + ".lock")
		ok, err := lock.TryLock()
		if err != nil {
			return fmt.Errorf("state file: %w", err)
		}
		if !ok {
			return fmt.Errorf("another watcher uses the state file %s", path)
		}
		defer lock.Unlock()
	}
	s, err := loadState(path)
	if err != nil {
		return err
	}
	return f(s)
}

// pause is how long to sleep: the interval and up to a tenth more, because many programs that were started together
// should not ask together; less if a run is to be tried again before.
func (w *Watcher) pause(s *state) time.Duration {
	d := w.List.Interval + rand.N(w.List.Interval/10)
	for _, e := range w.List.Entries {
		x := s.find(e)
		if r := x.run(x.Commit); r != nil && !r.RetryAfter.IsZero() {
			d = min(d, time.Until(r.RetryAfter))
		}
	}
	return max(d, time.Second)
}

func (w *Watcher) save(s *state) error {
	if w.DryRun {
		return nil
	}
	return s.save(w.List.State)
}

func (w *Watcher) tell(x *seen, ev Event) {
	ev.Time = time.Now().UTC().Truncate(time.Millisecond)
	if x != nil {
		ev.Repo, ev.Revision, ev.Recipe = x.Repo, x.Revision, x.Recipe
	}
	if ev.Err != nil {
		ev.Error = ev.Err.Error()
	}
	w.Event(ev)
}

// round is one poll of everything, and the runs that come of it.
func (w *Watcher) round(ctx context.Context, s *state, retry bool) (worst int, err error) {
	// What an earlier watcher left comes before anything newer.
	for _, e := range w.List.Entries {
		x := s.find(e)
		for _, r := range x.Runs {
			if r.Outcome != running {
				continue
			}
			code, err := w.run(ctx, s, x, r)
			if err != nil {
				return 0, err
			}
			worst = max(worst, code)
		}
	}
	code, err := w.poll(ctx, s)
	if err != nil {
		return 0, err
	}
	worst = max(worst, code)
	for _, e := range w.List.Entries {
		x := s.find(e)
		r := x.due(time.Now(), retry)
		if r == nil {
			continue
		}
		code, err := w.run(ctx, s, x, r)
		if err != nil {
			return 0, err
		}
		worst = max(worst, code)
	}
	return worst, nil
}

// due is the run that the newest commit needs, or nil. It is not among the runs yet if it is new.
func (s *seen) due(now time.Time, retry bool) *run {
	r := s.run(s.Commit)
	switch {
	case s.Commit == "":
		return nil
	case r == nil:
		return &run{Commit: s.Commit}
	case r.Outcome != failed:
		return nil
	case retry, !r.RetryAfter.IsZero() && !now.Before(r.RetryAfter), r.Recipe != s.digest():
		return r
	}
	return nil
}

// poll asks for all commits and notes the answers.
func (w *Watcher) poll(ctx context.Context, s *state) (worst int, err error) {
	type answer struct {
		x   *seen
		tip hub.Tip
		err error
	}
	var answers []*answer
	end := Event{Kind: Polled}
	for _, e := range w.List.Entries {
		x := s.find(e)
		if time.Now().Before(x.PollAfter) {
			end.Waiting++
			continue
		}
		answers = append(answers, &answer{x: x})
	}
	var g errgroup.Group
	g.SetLimit(polls)
	for _, a := range answers {
		g.Go(func() error {
			a.tip, a.err = w.Poll(ctx, a.x.Entry, a.x.ETag)
			return nil // one repository does not stop the others
		})
	}
	_ = g.Wait()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	for _, a := range answers {
		end.Asked++
		if a.err != nil {
			worst = max(worst, w.noteProblem(a.x, a.err))
			continue
		}
		if a.tip.Unchanged {
			end.Unchanged++
		}
		w.noteTip(a.x, a.tip)
	}
	if err := w.save(s); err != nil {
		return 0, err
	}
	w.tell(nil, end)
	return worst, nil
}

// noteProblem records the reason for which there is no commit; the result is the exit code.
func (w *Watcher) noteProblem(x *seen, err error) int {
	after, transient := hub.Transient(err)
	x.PollAfter = time.Time{}
	if after > 0 {
		x.PollAfter = time.Now().Add(min(after, maxAsked))
	}
	if transient {
		w.tell(x, Event{Kind: Problem, ExitCode: 1, Err: err, RetryAfter: x.PollAfter})
		return 1
	}
	kind := "failed"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = "not found"
	case errors.Is(err, fs.ErrPermission):
		kind = "no access"
	}
	if x.Problem == kind {
		return 0
	}
	x.Problem = kind
	w.tell(x, Event{Kind: Problem, ExitCode: 1, Err: err})
	return 1
}

func (w *Watcher) noteTip(x *seen, t hub.Tip) {
	if x.Problem != "" {
		w.tell(x, Event{Kind: Recovered})
	}
	first := x.Commit == ""
	x.Problem, x.PollAfter, x.ETag = "", time.Time{}, t.ETag
	if !t.Unchanged {
		x.Commit = t.Commit
	}
	if first && w.FromNow && x.run(x.Commit) == nil {
		x.Runs = append(x.Runs, &run{Commit: x.Commit, Outcome: skipped})
		w.tell(x, Event{Kind: Skipped, Commit: x.Commit})
	}
}

// run has a commit run, with the state saved before and after, and returns the exit code.
func (w *Watcher) run(ctx context.Context, s *state, x *seen, r *run) (code int, err error) {
	resumed := r.Outcome != ""
	if w.DryRun {
		w.tell(x, Event{Kind: WouldRun, Commit: r.Commit, Resumed: resumed})
		return 0, nil
	}
	if !resumed {
		x.Runs = append(x.Runs, r)
	}
	*r = run{Commit: r.Commit, Outcome: running, Recipe: x.digest(), PID: os.Getpid(), Started: now(), Failures: r.Failures}
	if err := w.save(s); err != nil {
		return 0, err
	}
	w.tell(x, Event{Kind: Started, Commit: r.Commit, Resumed: resumed})
	res := w.Run(ctx, x.Entry, r.Commit)
	if res.Err != nil && ctx.Err() != nil {
		return 0, context.Cause(ctx) // it still counts as running, and the next watcher resumes it
	}
	r.PID, r.Ended = 0, now()
	ev := Event{Kind: Done, Commit: r.Commit, Packages: res.Packages}
	if res.Err == nil {
		r.Outcome, r.Failures = done, 0
	} else {
		r.fail(res)
		ev.Kind, ev.ExitCode, ev.Err, ev.RetryAfter = Failed, res.ExitCode, res.Err, r.RetryAfter
	}
	err = w.save(s)
	w.tell(x, ev)
	return r.ExitCode, err
}

func (r *run) fail(res Result) {
	text := res.Err.Error()
	r.Outcome, r.ExitCode, r.Error = failed, res.ExitCode, text[:min(len(text), maxMessage)]
	after, transient := hub.Transient(res.Err)
	if !transient {
		r.Failures = 0
		return
	}
	pause := min(maxPause, firstPause<<min(r.Failures, 16))
	r.Failures++
	r.RetryAfter = now().Add(max(pause, min(after, maxAsked)))
}

// now is the time as files have it: UTC, to the second.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
