//go:build fleet

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/worker"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/work"
	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish"
)

// simulated is a machine whose tasks sleep and move bytes.
type simulated struct {
	dir string

	mu   sync.Mutex
	work map[string]time.Duration // by stage
	runs map[string]int           // by task
}

// lasts is the time of a task: from half to one and a half of the mean of its stage.
func lasts(t flow.Task) time.Duration {
	mean := map[string]time.Duration{
		"rewrite": time.Second, "calibrate": 2 * time.Second, "allocate": 2 * time.Second, "quantize": 3 * time.Second,
		"verify": 2 * time.Second, "publish": time.Second / 2,
	}[t.Until]
	h := fnv.New32a()
	h.Write([]byte(t.Package + t.Until))
	return mean/2 + mean*time.Duration(h.Sum32()%1000)/1000
}

// bytesMoved is what each task reads and writes.
const bytesMoved = 64 << 10

func (s *simulated) Stage(ctx context.Context, t flow.Task) (flow.Done, error) {
	d := flow.Done{Commit: "c0ffee", Worker: "simulated"}
	if t.After != "" {
		if _, err := os.ReadFile(filepath.Join(s.dir, t.After.Hex())); err != nil {
			return d, err
		}
	}
	b := make([]byte, bytesMoved)
	if _, err := rand.Read(b); err != nil {
		return d, err
	}
	d.Record = digest.Of(b)
	d.Manifest = digest.Of([]byte(t.Package))
	activity.RecordHeartbeat(ctx, t.Until)
	select {
	case <-time.After(lasts(t)):
	case <-ctx.Done():
		return d, ctx.Err()
	}
	s.mu.Lock()
	s.work[t.Until] += lasts(t)
	s.runs[t.Package+" "+t.Until]++
	s.mu.Unlock()
	return d, os.WriteFile(filepath.Join(s.dir, d.Record.Hex()), b, 0o666)
}

func (s *simulated) Move(context.Context, flow.Channel) (publish.Move, error) {
	return publish.Move{}, errors.New("nothing is published")
}

// TestSimulated runs a release of 500 repositories in six variants whose tasks do no work, and compares its time with the least that is
// possible: the work of each queue over its slots, and the longest chain.
func TestSimulated(t *testing.T) {
	n := number(t, "FLEET_SIMULATED", 0)
	if n == 0 {
		t.Skip("long; FLEET_SIMULATED is the number of repositories")
	}
	c := newCluster(t)
	s := &simulated{dir: t.TempDir(), work: map[string]time.Duration{}, runs: map[string]int{}}
	slots := map[string]int{flow.Disk: 16, flow.Compute: 32, flow.Verify: 32, flow.Publish: 16} // for 500 repositories
	for role := range slots {
		slots[role] = max(1, slots[role]*n/500)
	}
	cl := c.dial()
	if cl.err != nil {
		t.Fatal(cl.err)
	}
	defer cl.Close()
	for role, n := range slots {
		w := sdk.New(cl.Client, flow.Queue(role, "v", "s"), sdk.Options{MaxConcurrentActivityExecutionSize: n, DisableWorkflowWorker: true})
		w.RegisterActivityWithOptions(s.Stage, activity.RegisterOptions{Name: flow.Stage})
		w.RegisterActivityWithOptions(s.Move, activity.RegisterOptions{Name: flow.Move})
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
	}
	w := sdk.New(cl.Client, flow.WorkflowQueue("v", "s"), sdk.Options{LocalActivityWorkerOnly: true})
	work.Register(w)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	p := simulatedPlan(n)
	start := time.Now()
	o := client.StartWorkflowOptions{ID: flow.ID(p.Release), TaskQueue: flow.WorkflowQueue("v", "s")}
	run, err := cl.ExecuteWorkflow(t.Context(), o, flow.ReleaseWorkflow, p)
	if err != nil {
		t.Fatal(err)
	}
	var sum flow.Summary
	if err := run.Get(t.Context(), &sum); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	bound, chain := s.bound(p, slots)
	twice := 0
	for _, n := range s.runs {
		if n > 1 {
			twice++
		}
	}
	events, size := c.history(p.Release)
	inner, _ := c.history(p.Release + "/" + p.Repositories[0].ID)
	info, err := os.Stat(filepath.Join(c.dir, "server.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d packages, %d tasks: %.0f s, %.2f of the bound of %.0f s; longest chain %.0f s; %d tasks ran twice",
		sum.Complete, len(s.runs), took.Seconds(), took.Seconds()/bound.Seconds(), bound.Seconds(), chain.Seconds(), twice)
	t.Logf("history of the release %d events, %d bytes, of a repository %d events; server %s, database %d MB",
		events, size, inner, c.server.memory(), info.Size()>>20)
	if sum.Complete != 6*n || twice > 0 {
		t.Errorf("%+v, %d tasks ran twice", sum, twice)
	}
}

// bound is the least time that the work can take: that of each queue over its slots, and that of the longest chain.
func (s *simulated) bound(p flow.Plan, slots map[string]int) (bound, chain time.Duration) {
	shared, own := []string{"rewrite", "calibrate", "allocate"}, []string{"quantize", "verify", "publish"}
	stages := map[string][]string{
		flow.Disk: {"rewrite"}, flow.Compute: {"calibrate", "allocate", "quantize"}, flow.Verify: {"verify"}, flow.Publish: {"publish"},
	}
	for role, list := range stages {
		var all time.Duration
		for _, st := range list {
			all += s.work[st]
		}
		bound = max(bound, all/time.Duration(slots[role]))
	}
	sum := func(name string, stages []string) (all time.Duration) {
		for _, st := range stages {
			all += lasts(flow.Task{Package: name, Until: st})
		}
		return all
	}
	for _, r := range p.Repositories {
		for _, name := range r.Packages {
			chain = max(chain, sum(r.Packages[0], shared)+sum(name, own))
		}
	}
	return max(bound, chain), chain
}

// simulatedPlan is a release of n repositories with six packages each.
func simulatedPlan(n int) flow.Plan {
	p := flow.Plan{
		Frame:     flow.Frame{Release: "simulated", Code: "v", Store: "s", Heartbeat: time.Minute, Attempts: 5},
		OnFailure: flow.Hold, Parallel: 100, Recipes: map[string]flow.Recipe{"x": {File: "/x.yaml", Text: recipe}},
	}
	for i := range n {
		r := flow.Repository{ID: fmt.Sprintf("org/model-%d", i), Model: "m", Recipe: "x"}
		for j := range 6 {
			r.Packages = append(r.Packages, fmt.Sprintf("model-%d-v%d", i, j))
		}
		for _, until := range []string{"rewrite", "calibrate", "allocate"} {
			r.Shared = append(r.Shared, []flow.Shared{{Until: until, Lead: r.Packages[0], For: r.Packages}})
		}
		p.Repositories = append(p.Repositories, r)
	}
	return p
}

// TestThroughput compares a release with the bare stages, run by as many shells as there are workers, over the same kind of store:
// the time on processors, because the machine may be busy, and the time on the clock.
func TestThroughput(t *testing.T) {
	n := number(t, "FLEET_PACKAGES", 0)
	if n == 0 {
		t.Skip("long; FLEET_PACKAGES is the number of packages")
	}
	t.Setenv("MINIO_BIN", "")
	worker, llmexport := program(t, "worker"), program(t, "llmexport")
	c := newCluster(t)
	const workers = 4
	one := recipe[:strings.Index(recipe, "variants:")]
	var repos []string
	for i := range n {
		repos = append(repos, fmt.Sprintf("Model-%d", i))
		c.model("org/"+repos[i], models["Tiny"])
	}
	file := c.fleet("many", one, "", repos...)
	spans := [][]string{{"--until", "rewrite"}, {"--until", "quantize"}, {"--from", "verify", "--until", "verify"}, {"--from", "sign"}}
	var bare time.Duration
	var mu sync.Mutex
	start := time.Now()
	var g errgroup.Group
	g.SetLimit(workers)
	for _, r := range repos {
		g.Go(func() error {
			common := []string{llmexport, "--progress", "none", "--log-level", "error", "stage", "recipe.yaml", "--threads", "1",
				"--store", filepath.Join(c.dir, "bare"), "--cache", filepath.Join(c.dir, "bare-cache"),
				"--set", "model.repo=org/" + r, "--set", "name=" + strings.ToLower(r) + "-rtn4",
				"--set", fmt.Sprintf("publish=[{dir: %q}]", filepath.Join(c.dir, "want", "{name}"))}
			for _, span := range spans {
				used := c.cpu(slices.Concat(common, span)...)
				mu.Lock()
				bare += used
				mu.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	bareWall := time.Since(start)
	for i := range workers {
		c.worker(fmt.Sprintf("worker%d", i), worker, "--threads", "1", "--queues", "disk,compute,verify,publish")
	}
	c.await("the workers", func() error { // they live longer than a release
		for _, w := range c.workers {
			if log, err := os.ReadFile(w.log); err != nil || !strings.Contains(string(log), "worker started") {
				return fmt.Errorf("%s has not started, %w", w.name, err)
			}
		}
		return nil
	})
	before := c.server.cpu()
	for _, w := range c.workers {
		before += w.cpu()
	}
	start = time.Now()
	c.release(worker, file)
	wall := time.Since(start)
	server := c.server.cpu()
	used := server - before
	for _, w := range c.workers {
		used += w.cpu()
	}
	same := maps.Equal(digests(t, filepath.Join(c.dir, "want")), digests(t, filepath.Join(c.dir, "out")))
	t.Logf("%d packages; bare stages: %.1f s on processors, %.1f s; release: %.1f s on processors of workers and server, %.1f s",
		n, bare.Seconds(), bareWall.Seconds(), used.Seconds(), wall.Seconds())
	t.Logf("throughput %.2f by processors, %.2f by the clock; same packages: %v", bare.Seconds()/used.Seconds(), bareWall.Seconds()/wall.Seconds(), same)
	if !same {
		t.Error("the packages differ")
	}
}
