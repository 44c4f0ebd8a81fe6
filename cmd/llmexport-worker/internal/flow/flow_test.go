package flow_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/mock"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/work"
	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/channel"
)

// fake does the work of a release without doing any.
type fake struct {
	mu    sync.Mutex
	tasks []task
	// do may fail a task, or wait.
	do func(ctx context.Context, t flow.Task, attempt int32) error
	// moved are the packages of each move of a channel.
	moved, withdrawn []string
}

// task is an attempt that ended well.
type task struct {
	flow.Task
	queue   string
	attempt int32
}

func (f *fake) Stage(ctx context.Context, t flow.Task) (flow.Done, error) {
	info := activity.GetInfo(ctx)
	if f.do != nil {
		if err := f.do(ctx, t, info.Attempt); err != nil {
			return flow.Done{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks = append(f.tasks, task{t, info.TaskQueue, info.Attempt})
	d := flow.Done{Record: digest.Of([]byte(t.Package + t.Until)), Commit: "c0ffee", Worker: "w", Timings: []pipeline.Timing{{Stage: t.Until, Seconds: 1}}}
	switch t.Until {
	case "verify":
		d.Manifest = digest.Of([]byte(t.Package))
	case "publish":
		d.Places = []string{"/shelf/" + t.Package}
		d.Channels = []flow.Channel{{Shelf: "/shelf", Name: "stable", Packages: []publish.Shown{shown(t.Package)}}}
	}
	return d, nil
}

// shown is a package that a directory shows.
func shown(name string) publish.Shown {
	b, err := json.Marshal(struct {
		Target  publish.Target  `json:"target"`
		Package channel.Package `json:"package"`
	}{publish.Target{Dir: "/shelf/" + name, Channel: "stable"}, channel.Package{Name: name, Digest: digest.Of([]byte(name)), At: name}})
	if err == nil {
		var s publish.Shown
		if err = json.Unmarshal(b, &s); err == nil {
			return s
		}
	}
	panic(err)
}

func names(list []publish.Shown) string {
	var out []string
	for _, s := range list {
		b, err := json.Marshal(s)
		var x struct{ Package channel.Package }
		if err = errors.Join(err, json.Unmarshal(b, &x)); err != nil {
			panic(err)
		}
		out = append(out, x.Package.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (f *fake) Move(_ context.Context, c flow.Channel) (publish.Move, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved = append(f.moved, names(c.Packages))
	return publish.Move{Place: c.Shelf, Channel: c.Name, Status: channel.Moved}, nil
}

func (f *fake) Withdraw(_ context.Context, c flow.Channel) (publish.Move, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Contains(names(c.Packages), "superseded") {
		return publish.Move{}, temporal.NewNonRetryableApplicationError("others by now", flow.Superseded, nil)
	}
	f.withdrawn = append(f.withdrawn, names(c.Packages))
	return publish.Move{Place: c.Shelf, Channel: c.Name, Status: channel.Withdrawn}, nil
}

// env returns an environment with the real workflows and the fake work.
func (f *fake) env() *testsuite.TestWorkflowEnvironment {
	var s testsuite.WorkflowTestSuite
	s.SetLogger(work.Logger(zerolog.Nop()))
	e := s.NewTestWorkflowEnvironment()
	work.Register(e)
	for name, a := range map[string]any{flow.Stage: f.Stage, flow.Move: f.Move, flow.Withdraw: f.Withdraw} {
		e.RegisterActivityWithOptions(a, activity.RegisterOptions{Name: name})
	}
	e.SetTestTimeout(time.Minute) // of waiting, not of the release
	// A second, which is what else counts as a deadlock, is little on a machine that others use.
	e.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute})
	return e
}

// plan is a release of n repositories: each has a package without calibration, and two with a budget, which share text and
// sensitivities.
func plan(n int) flow.Plan {
	p := flow.Plan{
		Frame:     flow.Frame{Release: "r", Code: "v1", Store: "/store", Heartbeat: time.Minute, Attempts: 5},
		OnFailure: flow.Hold, Parallel: 10, Recipes: map[string]flow.Recipe{"x": {File: "/x.yaml", Text: "version: 1"}},
	}
	for i := range n {
		a, b, c := fmt.Sprintf("m%d-a", i), fmt.Sprintf("m%d-b", i), fmt.Sprintf("m%d-c", i)
		p.Repositories = append(p.Repositories, flow.Repository{
			ID: fmt.Sprintf("org/m%d", i), Model: fmt.Sprintf("org/m%d", i), Recipe: "x", Set: []string{"quantize.bits=4"}, Packages: []string{a, b, c},
			Shared: [][]flow.Shared{
				{{Until: "rewrite", Lead: a, For: []string{a, b, c}}},
				{{Until: "calibrate", Lead: b, For: []string{b, c}}},
				{{Until: "allocate", Lead: b, For: []string{b, c}}},
			},
		})
	}
	return p
}

func (f *fake) run(t *testing.T, p flow.Plan) (flow.State, error) {
	t.Helper()
	e := f.env()
	e.ExecuteWorkflow(flow.ReleaseWorkflow, p)
	if !e.IsWorkflowCompleted() {
		t.Fatal("the release did not end")
	}
	return state(t, e), e.GetWorkflowError()
}

func state(t *testing.T, e *testsuite.TestWorkflowEnvironment) (s flow.State) {
	t.Helper()
	for {
		v, err := e.QueryWorkflow(flow.StateQuery, len(s.Repositories))
		if err != nil {
			t.Fatal(err)
		}
		var page flow.State
		if err := v.Get(&page); err != nil {
			t.Fatal(err)
		}
		if len(page.Repositories) == 0 {
			return s
		}
		page.Repositories = append(s.Repositories, page.Repositories...)
		s = page
	}
}

// of lists the spans of a package in the order in which they ended.
func (f *fake) of(name string) (list []string) {
	for _, t := range f.tasks {
		if t.Package == name {
			list = append(list, strings.TrimPrefix(t.From+"-"+t.Until, "-"))
		}
	}
	return list
}

func TestOrder(t *testing.T) {
	t.Parallel()
	f := &fake{}
	p := plan(3)
	s, err := f.run(t, p)
	if err != nil {
		t.Fatal(err)
	}
	own := []string{"quantize", "verify-verify", "sign-publish"}
	for i := range 3 {
		for name, want := range map[string][]string{
			"a": slices.Concat([]string{"rewrite"}, own), "b": slices.Concat([]string{"calibrate", "allocate"}, own), "c": own,
		} {
			if d := gocmp.Diff(want, f.of(fmt.Sprintf("m%d-%s", i, name))); d != "" {
				t.Errorf("m%d-%s: %s", i, name, d)
			}
		}
	}
	queues := map[string]string{"rewrite": flow.Disk, "calibrate": flow.Compute, "allocate": flow.Compute, "quantize": flow.Compute,
		"verify": flow.Verify, "publish": flow.Publish}
	for i, x := range f.tasks {
		if want := flow.Queue(queues[x.Until], "v1", "/store"); x.queue != want {
			t.Errorf("%s of %s ran on %s, not %s", x.Until, x.Package, x.queue, want)
		}
		if !slices.Contains(x.Set, "quantize.bits=4") {
			t.Errorf("task %d, %s of %s: %v", i, x.Until, x.Package, x.Set)
		}
		first, _, _ := strings.Cut(x.Package, "-")
		after := digest.Of([]byte(first + "-arewrite")) // names the commit
		switch x.Until {
		case "rewrite":
			after = ""
		case "verify":
			after = digest.Of([]byte(x.Package + "quantize"))
		case "publish":
			after = digest.Of([]byte(x.Package + "verify"))
		}
		if x.After != after {
			t.Errorf("%s of %s is after %s", x.Until, x.Package, x.After)
		}
	}
	if d := gocmp.Diff([]string{"m0-a m0-b m0-c m1-a m1-b m1-c m2-a m2-b m2-c"}, f.moved); d != "" {
		t.Error(d)
	}
	if s.Phase != flow.Complete || s.Count(flow.Complete) != 9 || len(s.Parts) != 1 || s.Parts[0].Phase != flow.Complete {
		t.Errorf("%+v", s)
	}
	one := s.Repositories[0].Packages[0]
	if one.Digest != digest.Of([]byte("m0-a")) || one.Places[0] != "/shelf/m0-a" || one.Seconds["verify"] != 1 {
		t.Errorf("%+v", one)
	}
}

// A failure of another kind is tried again, with pauses; one that is final is not, and leaves the other packages.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, failing, stage string
		policy               flow.Policy
		kind                 string // empty: the first two attempts fail
		failed               int
		moved                []string
	}{
		{"again", "m0-b", "quantize", flow.Hold, "", 0, []string{"m0-a m0-b m0-c m1-a m1-b m1-c"}},
		{"verdict", "m0-b", "verify", flow.Hold, flow.Verdict, 1, nil},
		{"verdict, skipped", "m0-b", "verify", flow.Skip, flow.Verdict, 1, []string{"m0-a m0-c m1-a m1-b m1-c"}},
		{"refused", "m0-a", "rewrite", flow.Hold, flow.Unsupported, 3, nil},
		{"refused text", "m0-b", "calibrate", flow.Skip, flow.Mistake, 2, []string{"m0-a m1-a m1-b m1-c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			attempts := 0
			f := &fake{do: func(_ context.Context, x flow.Task, attempt int32) error {
				if x.Package != tc.failing || x.Until != tc.stage {
					return nil
				}
				attempts++
				switch {
				case tc.kind != "":
					return temporal.NewNonRetryableApplicationError("no", tc.kind, nil)
				case attempt < 3:
					return errors.New("not yet")
				}
				return nil
			}}
			p := plan(2)
			p.OnFailure = tc.policy
			s, err := f.run(t, p)
			if want := map[bool]int{true: 3, false: 1}[tc.kind == ""]; attempts != want {
				t.Errorf("%d attempts, want %d", attempts, want)
			}
			if s.Count(flow.Failed) != tc.failed || s.Count(flow.Complete) != 6-tc.failed {
				t.Errorf("%d failed, %d complete", s.Count(flow.Failed), s.Count(flow.Complete))
			}
			if d := gocmp.Diff(tc.moved, f.moved); d != "" {
				t.Error(d)
			}
			if tc.kind == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if flow.KindOf(err) != tc.kind {
				t.Errorf("the release ended with %v, not %s", err, tc.kind)
			}
			for _, x := range s.Repositories[0].Packages {
				if x.Phase == flow.Failed && (x.Error != tc.stage+": no" || x.Kind != tc.kind) {
					t.Errorf("%+v", x)
				}
			}
		})
	}
}

// Attempts are bounded, so that a release ends.
func TestAttemptsEnd(t *testing.T) {
	t.Parallel()
	attempts := 0
	f := &fake{do: func(_ context.Context, x flow.Task, _ int32) error {
		if x.Package == "m0-c" && x.Until == "publish" {
			attempts++
			return errors.New("the registry is away")
		}
		return nil
	}}
	s, err := f.run(t, plan(1))
	if attempts != 5 || err == nil || flow.KindOf(err) != "" || s.Count(flow.Failed) != 1 {
		t.Errorf("%d attempts, %v, %d failed", attempts, err, s.Count(flow.Failed))
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	f := &fake{do: func(ctx context.Context, x flow.Task, _ int32) error {
		switch {
		case x.Package == "m1-a" && x.Until == "quantize":
			return temporal.NewNonRetryableApplicationError("no", flow.Verdict, nil)
		case x.Repository != "org/m1":
			<-ctx.Done()
			return temporal.NewCanceledError()
		}
		return nil
	}}
	p := plan(4)
	p.OnFailure, p.Parallel = flow.Stop, 3
	s, err := f.run(t, p)
	if flow.KindOf(err) != flow.Verdict || s.Phase != flow.Failed || s.Count(flow.Cancelled) != 9 || len(f.moved) != 0 {
		t.Errorf("%v, %s, %d cancelled, moved %v", err, s.Phase, s.Count(flow.Cancelled), f.moved)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	f := &fake{}
	e := f.env()
	begun := make(chan bool, 100)
	f.do = func(ctx context.Context, x flow.Task, _ int32) error {
		if x.Repository != "org/m0" {
			begun <- true
			<-ctx.Done()
			return temporal.NewCanceledError()
		}
		return nil
	}
	p := plan(5)
	p.Parallel = 2
	p.Repositories[0].Part = "early"
	go func() {
		<-begun
		<-begun
		e.CancelWorkflow()
	}()
	e.ExecuteWorkflow(flow.ReleaseWorkflow, p)
	err := e.GetWorkflowError()
	if canceled := (*temporal.CanceledError)(nil); !errors.As(err, &canceled) {
		t.Fatalf("the release ended with %v", err)
	}
	s := state(t, e)
	if s.Phase != flow.Cancelled || s.Count(flow.Complete) != 3 || s.Count(flow.Cancelled) != 12 {
		t.Errorf("%s, %d complete, %d cancelled", s.Phase, s.Count(flow.Complete), s.Count(flow.Cancelled))
	}
	if d := gocmp.Diff([]string{"m0-a m0-b m0-c"}, f.moved); d != "" { // that part was complete
		t.Error(d)
	}
}

// The channels of a part move when it is complete, whatever happens to the others.
func TestParts(t *testing.T) {
	t.Parallel()
	f := &fake{do: func(_ context.Context, x flow.Task, _ int32) error {
		if x.Package == "m1-b" && x.Until == "verify" {
			return temporal.NewNonRetryableApplicationError("no", flow.Verdict, nil)
		}
		return nil
	}}
	p := plan(4)
	for i, part := range []string{"phones", "servers", "phones", ""} {
		p.Repositories[i].Part = part
	}
	s, err := f.run(t, p)
	slices.Sort(f.moved)
	if d := gocmp.Diff([]string{"m0-a m0-b m0-c m2-a m2-b m2-c", "m3-a m3-b m3-c"}, f.moved); d != "" || flow.KindOf(err) != flow.Verdict {
		t.Error(d, err)
	}
	for _, x := range s.Parts {
		if want := map[bool]flow.Phase{true: flow.Failed, false: flow.Complete}[x.Part == "servers"]; x.Phase != want || (x.Error != "") != (x.Part == "servers") {
			t.Errorf("%+v", x)
		}
	}
}

// A release of many repositories begins new histories, forgets nothing and does nothing twice.
func TestContinueAsNew(t *testing.T) {
	t.Parallel()
	f := &fake{do: func(_ context.Context, x flow.Task, _ int32) error {
		if x.Package == "m0-a" && x.Until == "verify" {
			return temporal.NewNonRetryableApplicationError("no", flow.Verdict, nil)
		}
		return nil
	}}
	p := plan(7)
	p.RollOver, p.OnFailure = 3, flow.Skip
	var s flow.State
	for histories := 1; ; histories++ {
		e := f.env()
		e.ExecuteWorkflow(flow.ReleaseWorkflow, p)
		err := e.GetWorkflowError()
		next := (*workflow.ContinueAsNewError)(nil)
		if errors.As(err, &next) {
			if next.WorkflowType.Name != flow.ReleaseWorkflow {
				t.Fatal(next.WorkflowType.Name)
			}
			p = decoded(t, next.Input)
			if len(f.moved) > 0 {
				t.Fatal("channels moved before the end")
			}
			continue
		}
		if flow.KindOf(err) != flow.Verdict || histories != 3 {
			t.Fatalf("%d histories, %v", histories, err)
		}
		s = state(t, e)
		break
	}
	if s.Count(flow.Complete) != 20 || s.Count(flow.Failed) != 1 {
		t.Errorf("%d complete, %d failed", s.Count(flow.Complete), s.Count(flow.Failed))
	}
	if len(f.moved) != 1 || len(strings.Fields(f.moved[0])) != 20 {
		t.Errorf("moved %v", f.moved)
	}
	count := map[string]int{}
	for _, x := range f.tasks {
		count[x.Package+x.Until]++
	}
	for k, n := range count {
		if n != 1 {
			t.Errorf("%s ran %d times", k, n)
		}
	}
}

func decoded(t *testing.T, input *commonpb.Payloads) (p flow.Plan) {
	t.Helper()
	if err := converter.GetDefaultDataConverter().FromPayloads(input, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// No more repositories are open than the plan allows.
func TestParallel(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	open, most := map[string]bool{}, 0
	f := &fake{do: func(_ context.Context, x flow.Task, _ int32) error {
		mu.Lock()
		defer mu.Unlock()
		if x.Until == "rewrite" {
			open[x.Repository] = true
			most = max(most, len(open))
		}
		if x.Package[len(x.Package)-1] == 'c' && x.Until == "publish" {
			delete(open, x.Repository) // nearly over
		}
		return nil
	}}
	p := plan(20)
	p.Parallel = 4
	if _, err := f.run(t, p); err != nil || most > 5 {
		t.Errorf("%d open, %v", most, err)
	}
}

// What the shared store has lost is made again, but not for ever.
func TestAbsent(t *testing.T) {
	t.Parallel()
	for lost, failed := range map[int]int{1: 0, 2: 0, 5: 1} {
		n := 0
		f := &fake{do: func(_ context.Context, x flow.Task, _ int32) error {
			if x.Package == "m0-a" && x.Until == "verify" {
				if n++; n <= lost {
					return temporal.NewNonRetryableApplicationError("weights are gone", flow.Absent, nil)
				}
			}
			return nil
		}}
		s, _ := f.run(t, plan(1))
		if s.Count(flow.Failed) != failed {
			t.Errorf("lost %d times: %d failed", lost, s.Count(flow.Failed))
		}
	}
}

// Verification on another architecture must give the same package, and a package that differs is not published.
func TestArchitectures(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		f := &fake{}
		e := f.env()
		stage := func(ctx context.Context, x flow.Task) (flow.Done, error) {
			d, err := f.Stage(ctx, x)
			if x.Again && !same && x.Package == "m0-b" {
				d.Manifest = digest.Of([]byte("other"))
			}
			return d, err
		}
		e.OnActivity(flow.Stage, mock.Anything, mock.Anything).Return(stage)
		p := plan(1)
		p.VerifyOn = []string{"arm64"}
		e.ExecuteWorkflow(flow.ReleaseWorkflow, p)
		err := e.GetWorkflowError()
		if (err == nil) != same || !same && flow.KindOf(err) != flow.Verdict {
			t.Errorf("same %v: %v", same, err)
		}
		again := 0
		for _, x := range f.tasks {
			if x.Again {
				again++
				if x.queue != flow.Queue("verify-arm64", "v1", "/store") {
					t.Errorf("on %s", x.queue)
				}
			}
		}
		if published := slices.Contains(f.of("m0-b"), "sign-publish"); again != 3 || published != same {
			t.Errorf("same %v: verified %d times, published %v", same, again, published)
		}
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	f := &fake{}
	e := f.env()
	list := []flow.Channel{{Shelf: "/a", Name: "stable", Packages: []publish.Shown{shown("x")}},
		{Shelf: "/b", Name: "stable", Packages: []publish.Shown{shown("superseded")}}}
	e.ExecuteWorkflow(flow.RollbackWorkflow, flow.RollbackInput{Frame: plan(0).Frame, Channels: list})
	var out flow.RolledBack
	if err := cmp.Or(e.GetWorkflowError(), e.GetWorkflowResult(&out)); err != nil {
		t.Fatal(err)
	}
	if len(out.Moves) != 1 || len(out.Errors) != 1 || out.Errors[0] != "others by now" || f.withdrawn[0] != "x" {
		t.Errorf("%+v, %v", out, f.withdrawn)
	}
}

// Workers of another version or store have other queues.
func TestQueues(t *testing.T) {
	t.Parallel()
	p := plan(2)
	p.Queues = map[string]string{flow.Compute: "big"}
	p.Repositories[1].Queues = map[string]string{flow.Compute: "bigger"}
	p.VerifyOn = []string{"arm64"}
	var got []string
	for _, q := range p.TaskQueues() {
		name, key, _ := strings.Cut(q, "@")
		if len(key) != 12 {
			t.Errorf("%s", q)
		}
		got = append(got, name)
	}
	slices.Sort(got) // not by what follows the name
	if d := gocmp.Diff([]string{"big", "bigger", "disk", "publish", "release", "verify", "verify-arm64"}, got); d != "" {
		t.Error(d)
	}
	all := map[string]bool{}
	for _, code := range []string{"v1", "v2"} {
		for _, store := range []string{"/store", "/store2"} {
			all[flow.Queue(flow.Disk, code, store)] = true
		}
	}
	if len(all) != 4 {
		t.Error(all)
	}
}
