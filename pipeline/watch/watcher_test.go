package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var (
	errNetwork = fmt.Errorf("hub: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	errGated   = &hub.StatusError{Status: 403, Code: "GatedRepo"}
	errGone    = &hub.StatusError{Status: 404, Code: "RepoNotFound"}
)

// world is a hub and a pipeline.
type world struct {
	mu      sync.Mutex
	commits map[string]string // of repositories
	down    map[string]error  // instead
	results map[string]Result // of commits; without one all goes well
	runs    []string          // "repo commit" in order
	events  []string
	polled  Event // the last one
	during  func(ctx context.Context)
}

func newWorld() *world {
	return &world{commits: map[string]string{"a/one": commitA}, down: map[string]error{}, results: map[string]Result{}}
}

func (w *world) watcher(t *testing.T, repos ...string) *Watcher {
	t.Helper()
	dir := t.TempDir()
	l := &List{Interval: DefaultInterval, State: filepath.Join(dir, "sub", "state.json")}
	for _, r := range repos {
		l.Entries = append(l.Entries, Entry{Repo: r, Revision: "main", Recipe: "r.yaml", file: filepath.Join(dir, "r.yaml")})
	}
	if err := os.WriteFile(filepath.Join(dir, "r.yaml"), []byte("version: 1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	return &Watcher{
		List: l,
		Poll: func(_ context.Context, e Entry, etag string) (hub.Tip, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if err := w.down[e.Repo]; err != nil {
				return hub.Tip{}, err
			}
			tag := `"` + w.commits[e.Repo] + `"`
			if etag == tag {
				return hub.Tip{ETag: tag, Unchanged: true}, nil
			}
			return hub.Tip{Commit: w.commits[e.Repo], ETag: tag}, nil
		},
		Run: func(ctx context.Context, e Entry, commit string) Result {
			w.runs = append(w.runs, e.Repo+" "+commit[:1])
			if w.during != nil {
				w.during(ctx)
			}
			if ctx.Err() != nil {
				return Result{Err: ctx.Err(), ExitCode: 1}
			}
			return w.results[commit]
		},
		Event: func(ev Event) {
			if ev.Kind == Polled {
				w.polled = ev
				return
			}
			s := ev.Kind + " " + ev.Repo
			if ev.Resumed {
				s += " resumed"
			}
			w.events = append(w.events, s)
		},
	}
}

// once demands the exit code, runs and events of one poll.
func (w *world) once(t *testing.T, x *Watcher, code int, runs string, events ...string) {
	t.Helper()
	w.runs, w.events = nil, nil
	got, err := x.Once(t.Context())
	if err != nil || got != code {
		t.Errorf("exit code %d, want %d: %v", got, code, err)
	}
	if got := strings.Join(w.runs, ", "); got != runs {
		t.Errorf("runs %q, want %q", got, runs)
	}
	if diff := cmp.Diff(events, w.events); diff != "" && !(len(events) == 0 && len(w.events) == 0) {
		t.Error(diff)
	}
}

func TestOnce(t *testing.T) {
	w := newWorld()
	w.commits["a/two"] = commitA
	x := w.watcher(t, "a/one", "a/two")
	w.once(t, x, 0, "a/one a, a/two a", "started a/one", "done a/one", "started a/two", "done a/two")
	w.once(t, x, 0, "")
	if w.polled.Asked != 2 || w.polled.Unchanged != 2 {
		t.Errorf("%+v", w.polled)
	}
	w.commits["a/two"] = commitB
	w.once(t, x, 0, "a/two b", "started a/two", "done a/two")
	// A branch that goes back brings nothing new.
	w.commits["a/two"] = commitA
	w.once(t, x, 0, "")
	if w.polled.Unchanged != 1 {
		t.Errorf("%+v", w.polled)
	}
	// An entry that leaves the list and comes back is known.
	all := x.List.Entries
	x.List.Entries = all[:1]
	w.once(t, x, 0, "")
	x.List.Entries = all
	w.once(t, x, 0, "")
}

func TestFromNow(t *testing.T) {
	w := newWorld()
	x := w.watcher(t, "a/one")
	x.FromNow = true
	w.once(t, x, 0, "", "skipped a/one")
	w.commits["a/one"] = commitB
	w.once(t, x, 0, "a/one b", "started a/one", "done a/one")
	w.commits["a/one"] = commitA
	x.FromNow, x.RetryFailed = false, true
	w.once(t, x, 0, "")
}

func TestDryRun(t *testing.T) {
	w := newWorld()
	x := w.watcher(t, "a/one")
	x.DryRun = true
	for range 2 {
		w.once(t, x, 0, "", "would_run a/one")
	}
	if _, err := os.Stat(filepath.Dir(x.List.State)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dry run left something: %v", err)
	}
}

func TestFailures(t *testing.T) {
	w := newWorld()
	w.commits["a/two"] = commitB
	x := w.watcher(t, "a/one", "a/two")
	w.results[commitA] = Result{Err: errors.New("too bad"), ExitCode: 3}
	w.results[commitB] = Result{Err: errors.New("no"), ExitCode: 1}
	w.once(t, x, 3, "a/one a, a/two b", "started a/one", "failed a/one", "started a/two", "failed a/two")
	w.once(t, x, 0, "") // the same would come out
	delete(w.results, commitB)
	x.RetryFailed = true
	w.once(t, x, 3, "a/one a, a/two b", "started a/one resumed", "failed a/one", "started a/two resumed", "done a/two")
	x.RetryFailed = false
	// Another text of the recipe may do better; what is done stays done.
	delete(w.results, commitA)
	if err := os.WriteFile(x.List.Entries[0].file, []byte("version: 1\n# mended\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	w.once(t, x, 0, "a/one a", "started a/one resumed", "done a/one")
	w.once(t, x, 0, "")
}

func TestProblems(t *testing.T) {
	w := newWorld()
	w.commits["a/two"] = commitB
	x := w.watcher(t, "a/one", "a/two")
	for _, err := range []error{errGated, errGone, fmt.Errorf("odd: %w", tensor.ErrCorrupt)} {
		w.down["a/one"] = err
		runs, events := "", []string{"problem a/one"}
		if err == errGated {
			runs, events = "a/two b", append(events, "started a/two", "done a/two")
		}
		w.once(t, x, 1, runs, events...)
		w.once(t, x, 0, "") // it was said
	}
	w.down["a/one"] = errNetwork
	for range 2 { // this may pass, so that nobody knows what is new
		w.once(t, x, 1, "", "problem a/one")
	}
	delete(w.down, "a/one")
	w.once(t, x, 0, "a/one a", "recovered a/one", "started a/one", "done a/one")
	w.once(t, x, 0, "")
}

// TestInterrupted: a run that ends with its watcher is the next one's first.
func TestInterrupted(t *testing.T) {
	w := newWorld()
	x := w.watcher(t, "a/one")
	ctx, stop := context.WithCancel(t.Context())
	w.during = func(context.Context) { stop() }
	if _, err := x.Once(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.during = nil
	// There is a newer commit meanwhile, and the repository cannot be asked at first.
	w.commits["a/one"] = commitB
	w.down["a/one"] = errNetwork
	w.once(t, x, 1, "a/one a", "started a/one resumed", "done a/one", "problem a/one")
	delete(w.down, "a/one")
	w.once(t, x, 0, "a/one b", "started a/one", "done a/one")
	w.once(t, x, 0, "")
}

// TestStopsAnywhere ends the watcher at each of its steps by a copy of the state as it lies on the disk there, as a kill
// would leave it: whatever the step, every commit is done in the end and none is run twice.
func TestStopsAnywhere(t *testing.T) {
	w := newWorld()
	x := w.watcher(t, "a/one")
	var states [][]byte
	keep := func() {
		b, err := os.ReadFile(x.List.State)
		if err == nil {
			states = append(states, b)
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	event := x.Event
	x.Event = func(ev Event) { keep(); event(ev) }
	w.during = func(context.Context) { keep() }
	for _, c := range []string{commitA, commitB} {
		w.commits["a/one"] = c
		if code, err := x.Once(t.Context()); code != 0 || err != nil {
			t.Fatal(code, err)
		}
	}
	w.during, x.Event = nil, event
	if len(states) < 7 {
		t.Fatalf("only %d states", len(states))
	}
	for i, b := range states {
		if err := os.WriteFile(x.List.State, b, 0o666); err != nil {
			t.Fatal(err)
		}
		before, err := parseState(b)
		if err != nil {
			t.Fatal(err)
		}
		w.events, w.runs = nil, nil
		for range 2 {
			if code, err := x.Once(t.Context()); code != 0 || err != nil {
				t.Fatal(code, err)
			}
		}
		after, err := loadState(x.List.State)
		if err != nil {
			t.Fatal(err)
		}
		if r := after.Entries[0].run(commitB); r == nil || r.Outcome != done {
			t.Errorf("state %d: the newest commit is not done", i)
		}
		for _, r := range before.Entries[0].Runs {
			n := 0
			for _, s := range w.runs {
				if s == "a/one "+r.Commit[:1] {
					n++
				}
			}
			if want := map[string]int{done: 0, running: 1}[r.Outcome]; n != want {
				t.Errorf("state %d: %s of %s ran %d times, want %d", i, r.Outcome, r.Commit, n, want)
			}
		}
	}
}

func TestTwoWatchers(t *testing.T) {
	w := newWorld()
	x := w.watcher(t, "a/one")
	w.during = func(ctx context.Context) {
		if _, err := x.Once(ctx); err == nil || !strings.Contains(err.Error(), "another watcher uses the state file "+x.List.State) {
			t.Errorf("a second watcher: %v", err)
		}
	}
	w.once(t, x, 0, "a/one a", "started a/one", "done a/one")
}

// TestLoop: polls are an interval apart, runs that the network ended come back after growing pauses, and a hub that asks for
// rest is left alone.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		x := w.watcher(t, "a/one")
		begin := time.Now()
		var polled, ran []time.Duration
		poll := x.Poll
		x.Poll = func(ctx context.Context, e Entry, etag string) (hub.Tip, error) {
			polled = append(polled, time.Since(begin))
			return poll(ctx, e, etag)
		}
		w.during = func(context.Context) {
			if ran = append(ran, time.Since(begin)); len(ran) == 4 {
				delete(w.results, commitA)
			}
		}
		w.results[commitA] = Result{Err: errNetwork, ExitCode: 1}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- x.Loop(ctx) }()
		time.Sleep(50 * time.Minute)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		// Pauses of 1, 2 and 4 minutes, of which up to a second is rounding; then nothing is left to run.
		if len(ran) != 4 {
			t.Fatalf("ran at %v", ran)
		}
		for i, want := range []time.Duration{0, 1, 3, 7} {
			if d := ran[i] - want*time.Minute; d < -time.Duration(i)*time.Second || d > time.Duration(i)*time.Second {
				t.Errorf("run %d at %v, want about %d minutes", i, ran[i], want)
			}
		}
		// From the last run on, intervals of 15 to 16.5 minutes.
		if len(polled) != 6 {
			t.Errorf("polled at %v", polled)
		}
		for i := 4; i < len(polled); i++ {
			if d := polled[i] - polled[i-1]; d < x.List.Interval || d > x.List.Interval*11/10 {
				t.Errorf("%v between two polls", d)
			}
		}
	})
}

// TestRetryFailedOnce: in a loop, what fails again is left alone until the next start.
func TestRetryFailedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		x := w.watcher(t, "a/one")
		w.results[commitA] = Result{Err: errors.New("no"), ExitCode: 4}
		w.once(t, x, 4, "a/one a", "started a/one", "failed a/one")
		x.RetryFailed = true
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Hour)
		defer stop()
		w.runs = nil
		if err := x.Loop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if len(w.runs) != 1 {
			t.Errorf("ran %d times", len(w.runs))
		}
	})
}
