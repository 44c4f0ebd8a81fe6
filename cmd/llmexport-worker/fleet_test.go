//go:build fleet

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/temporal"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/publish/channel"
)

// models are the repositories of the hub and where their files are: five families.
var models = map[string]string{
	"Tiny": "../../testdata/tiny-qwen3", "Llama": "../../pipeline/arch/testdata/llama", "Gemma2": "../../pipeline/arch/testdata/gemma2",
	"Qwen3": "../../pipeline/arch/testdata/qwen3-untied", "Olmo2": "../../pipeline/arch/testdata/olmo2",
}

// model adds a repository to the hub.
func (c *cluster) model(name, dir string) {
	c.t.Helper()
	if _, err := c.hub.Repo(name).CommitDir("main", dir, nil); err != nil {
		c.t.Fatal(err)
	}
}

// recipe makes four packages: two that are rounded, one with calibration, and one with a budget.
const recipe = `version: 1
name: rtn4
model: {repo: org/any}
limits: {memory: 512MiB}
calibrate: {tokens: 512, window: 32, probe: 64}
quantize: {method: rtn, block: 32}
verify:
  kl: {max: 9}
  layers: {max: 9}
  perplexity: {window: 16, windows: 1, decode: 2, max_source: 1e9, max_ratio: 1e9}
publish: [{dir: "OUT/{name}", channel: stable}]
variants:
  - {name: rtn8, quantize: {bits: 8}}
  - {name: gptq4, quantize: {method: gptq}}
  - {name: budget, quantize: {method: gptq, budget: {bpw: 4.5}}}
`

var packages = []string{"rtn4", "rtn8", "gptq4", "budget"}

// fleet writes a fleet of repositories, and the recipe, which publishes to the directory out.
func (c *cluster) fleet(name, recipe, more string, repos ...string) string {
	c.write("recipe.yaml", strings.ReplaceAll(recipe, "OUT", filepath.Join(c.dir, "out")))
	text := fmt.Sprintf("version: 1\nname: %s\nstore: %q\nheartbeat: 5s\n%srepositories:\n", name, c.store, more)
	for _, r := range repos {
		text += fmt.Sprintf("  - {repo: org/%s, recipe: recipe.yaml, package: '{model}-{name}'}\n", r)
	}
	return c.write(name+".yaml", text)
}

// alone makes the packages of repositories with llmexport run, which knows nothing of the cluster, and returns their digests.
func (c *cluster) alone(bin string, repos ...string) map[string]string {
	for _, r := range repos {
		args := []string{bin, "--progress", "none", "run", "recipe.yaml", "--cache", filepath.Join(c.dir, "alone"), "--set", "model.repo=org/" + r,
			"--set", fmt.Sprintf("publish=[{dir: %q}]", filepath.Join(c.dir, "want", "{name}"))}
		for i, p := range packages {
			key := fmt.Sprintf("variants[%d].name", i-1)
			if i == 0 {
				key = "name"
			}
			args = append(args, "--set", key+"="+strings.ToLower(r)+"-"+p)
		}
		c.run(0, slices.Insert(args, 4, "--log-level", "error")...)
	}
	return digests(c.t, filepath.Join(c.dir, "want"))
}

// number is a variable of the environment, so that more can be had by hand.
func number(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q is not a number", name, text)
	}
	return n
}

// ended reports whether a release has ended, and with what error.
func (c *cluster) ended(release string) (bool, error) {
	cl := c.dial()
	if cl.err != nil {
		return false, nil
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	err := cl.GetWorkflow(ctx, flow.ID(release), "").Get(ctx, nil)
	if err == nil || temporal.IsApplicationError(err) || temporal.IsCanceledError(err) {
		return true, err
	}
	return false, nil // the server is away, or the release runs
}

// havoc kills workers until a release has ended, at most so often, and with the third and the sixth of ten workers the server and the
// store, which stay away for a while. It returns how often each was killed.
func (c *cluster) havoc(release string, kills int) (workers, servers, stores int) {
	c.t.Helper()
	every := time.Duration(number(c.t, "FLEET_EVERY", 4)) * time.Second
	outage := time.Duration(number(c.t, "FLEET_OUTAGE", 3)) * time.Second
	away := func(p *process, times *int) {
		if p == nil || *times == 3 {
			return
		}
		p.kill()
		time.Sleep(outage)
		p.start()
		*times++
	}
	for n := 1; ; n++ {
		pause := time.After(every)
		done, err := c.ended(release)
		if done && err != nil {
			c.t.Errorf("the release ended with %v", err)
		}
		if done {
			return workers, servers, stores
		}
		<-pause
		if workers == kills {
			continue
		}
		w := c.workers[n%len(c.workers)]
		w.kill()
		workers++
		switch n % 10 {
		case 3:
			away(c.server, &servers)
		case 6:
			away(c.minio, &stores)
		}
		w.start()
	}
}

// TestKilled kills workers, the server and the store while a release is made, and compares the packages with those of llmexport run.
func TestKilled(t *testing.T) {
	worker := program(t, "worker")
	c := newCluster(t)
	repos := slices.Sorted(maps.Keys(models))
	for i := 1; i < number(t, "FLEET_COPIES", 1); i++ {
		for name, dir := range models {
			repos = append(repos, fmt.Sprintf("%s-%d", name, i))
			c.model("org/"+repos[len(repos)-1], dir)
		}
	}
	file := c.fleet("killed", recipe, "channel: stable\n", repos...)
	want := c.alone(program(t, "llmexport"), repos...)
	for i := range 4 {
		c.worker(fmt.Sprintf("worker%d", i), worker, "--threads", "2")
	}
	c.run(0, worker, "release", "start", file)
	workers, servers, stores := c.havoc("killed", number(t, "FLEET_KILLS", 6))
	got := digests(t, filepath.Join(c.dir, "out"))
	lost, different := 0, 0
	for name, d := range want {
		switch {
		case got[name] == "":
			lost++
		case got[name] != d:
			different++
		}
	}
	s := c.status(worker, "killed")
	c.run(0, worker, "release", "status", "--html", filepath.Join(c.dir, "page.html"), "killed")
	t.Logf("%d packages; killed: workers %d times, server %d, store %d; lost %d, different %d; %d events, %d bytes of history; server %s",
		len(want), workers, servers, stores, lost, different, s.Events, s.HistoryBytes, c.server.memory())
	if d := cmp.Diff(want, got); d != "" || lost+different > 0 {
		t.Errorf("packages (-alone +release):\n%s", d)
	}
	if s.Count(flow.Complete) != len(want) || len(s.Parts) != 1 || s.Parts[0].Phase != flow.Complete {
		t.Errorf("%+v", s)
	}
	var names []string
	for _, p := range c.channel("out", "stable").Packages {
		names = append(names, p.Name)
		if string(p.Digest) != want[p.Name] {
			t.Errorf("the channel names %s with %s", p.Name, p.Digest)
		}
	}
	if len(names) != len(want) {
		t.Errorf("the channel names %v", names)
	}
}

// channel is the current release of a channel of a directory.
func (c *cluster) channel(dir, name string) channel.Release {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.dir, dir, "channels.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	x, err := channel.Parse(b)
	if err != nil {
		c.t.Fatal(err)
	}
	r, _ := x[name].Current()
	return r
}

// A worker of another version serves other queues: it takes no task, and a release waits for the right one. A second release moves the
// channel, and a rollback moves it back.
func TestVersionsAndRollback(t *testing.T) {
	worker := program(t, "worker")
	c := newCluster(t)
	file := c.fleet("first", recipe, "", "Tiny")
	other := c.worker("other", program(t, "other"))
	c.run(0, worker, "release", "start", file)
	c.await("the release", func() error {
		cl := c.dial()
		if cl.err != nil {
			return cl.err
		}
		defer cl.Close()
		_, err := cl.DescribeWorkflowExecution(t.Context(), flow.ID("first"), "")
		return err
	})
	c.run(1, worker, "release", "start", file) // it runs already
	if done, _ := c.ended("first"); done {
		t.Fatal("a worker of another version made the release")
	}
	at := port(t)
	c.worker("right", worker, "--metrics", at, "--queues", "disk,compute=2,verify,publish=2")
	c.await("the release", func() error {
		if done, err := c.ended("first"); !done || err != nil {
			return fmt.Errorf("ended %v, %w", done, err)
		}
		return nil
	})
	if log, err := os.ReadFile(other.log); err != nil || strings.Contains(string(log), "task began") {
		t.Errorf("the other worker: %s, %v", log, err)
	}
	text, err := metrics(t.Context(), at)
	for _, want := range []string{`llmexport_tasks_total{`, `outcome="done"`, "temporal_workflow_completed_total", "llmexport_task_time"} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s: %v\n%s", want, err, text)
		}
	}
	before := c.channel("out", "stable")
	if len(before.Packages) != 4 {
		t.Fatalf("%+v", before)
	}
	checkLog(t, string(must(os.ReadFile(filepath.Join(c.dir, "right.log")))))
	// Other packages of the same names, at other places of the shelf.
	changed := strings.NewReplacer("block: 32", "block: 64", "OUT/{name}", "OUT/{name}-second").Replace(recipe)
	second := c.fleet("second", changed, "", "Tiny")
	out := c.release(worker, second)
	if !strings.Contains(out, "release second is complete: 4 packages, 1 channels moved") {
		t.Error(out)
	}
	if now := c.channel("out", "stable"); slices.Equal(digestsOf(now), digestsOf(before)) {
		t.Error("the channel did not move")
	}
	c.run(0, worker, "release", "rollback", "second")
	if now := c.channel("out", "stable"); !slices.Equal(digestsOf(now), digestsOf(before)) {
		t.Errorf("the channel names %+v", now)
	}
	c.run(0, worker, "release", "rollback", "second") // again: nothing more
	if now := c.channel("out", "stable"); !slices.Equal(digestsOf(now), digestsOf(before)) {
		t.Errorf("the channel names %+v", now)
	}
	if out := c.run(1, worker, "release", "rollback", file); !strings.Contains(out, "no earlier release") {
		t.Error(out)
	}
	c.run(1, worker, "release", "status", "nothing")
	c.run(1, worker, "release", "cancel", "first")
}

// checkLog checks that the lines about tasks name what they are about.
func checkLog(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(log)) {
		var x struct{ Message, Release, Repository, Variant, Stage, Channel string }
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		named := x.Repository == "org/Tiny" && x.Variant != "" || x.Channel != ""
		if x.Message == "task done" && (x.Release != "first" || x.Stage == "" || !named) {
			t.Error(line)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func digestsOf(r channel.Release) (list []string) {
	for _, p := range r.Packages {
		list = append(list, string(p.Digest))
	}
	return list
}

// A worker with an empty cache finds every file of the store damaged, and makes the same packages.
func TestDamagedStore(t *testing.T) {
	worker := program(t, "worker")
	t.Setenv("MINIO_BIN", "") // a directory can be damaged
	c := newCluster(t)
	file := c.fleet("damage", recipe, "", "Llama", "Tiny")
	want := c.alone(program(t, "llmexport"), "Llama", "Tiny")
	c.worker("one", worker)
	c.release(worker, file)
	c.workers[0].kill()
	flipped := 0
	err := filepath.WalkDir(c.store, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil || info.Size() < 64 {
			return err
		}
		text := must(os.ReadFile(path))
		text[len(text)/2] ^= 1
		flipped++
		return os.WriteFile(path, text, 0o666)
	})
	if err != nil || flipped < 10 {
		t.Fatal(flipped, err)
	}
	if err := os.RemoveAll(filepath.Join(c.dir, "out")); err != nil {
		t.Fatal(err)
	}
	c.worker("two", worker)
	c.release(worker, file)
	t.Logf("%d files of the store damaged", flipped)
	if d := cmp.Diff(want, digests(t, filepath.Join(c.dir, "out"))); d != "" {
		t.Errorf("packages (-alone +release):\n%s", d)
	}
}

// A worker whose disk is full hands its tasks back.
func TestFullDisk(t *testing.T) {
	worker := program(t, "worker")
	c := newCluster(t)
	full := c.tmpfs("full", 1<<20)
	if full == "" {
		t.Skip("a small disk cannot be mounted")
	}
	file := c.fleet("full", recipe, "", "Llama", "Tiny")
	want := c.alone(program(t, "llmexport"), "Llama", "Tiny")
	c.worker("small", worker, "--cache", full)
	c.worker("large", worker)
	c.release(worker, file)
	if d := cmp.Diff(want, digests(t, filepath.Join(c.dir, "out"))); d != "" {
		t.Errorf("packages (-alone +release):\n%s", d)
	}
	if log := string(must(os.ReadFile(filepath.Join(c.dir, "small.log")))); !strings.Contains(log, "the disk is full") {
		t.Errorf("the disk was not full:\n%s", log)
	}
}

// tmpfs mounts a small disk; empty if that is not allowed.
func (c *cluster) tmpfs(name string, size int) string {
	dir := filepath.Join(c.dir, name+"-disk")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		c.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		c.t.Logf("no small disk: %v", err)
		return ""
	}
	c.t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// Verification on another architecture, in an emulator, gives the same packages.
func TestArm64(t *testing.T) {
	if _, err := exec.LookPath("qemu-aarch64"); err != nil {
		t.Skip("qemu-aarch64 is not installed")
	}
	worker := program(t, "worker")
	c := newCluster(t)
	file := c.fleet("arm64", recipe, "verify_on: [arm64]\nheartbeat: 60s\n", "Tiny")
	c.write("arm64.yaml", strings.Replace(string(must(os.ReadFile(file))), "heartbeat: 5s\n", "", 1))
	c.worker("amd64", worker)
	c.worker("emulated", program(t, "arm64"), "--queues", "verify-arm64")
	c.release(worker, file)
	log := string(must(os.ReadFile(filepath.Join(c.dir, "emulated.log"))))
	if n := strings.Count(log, `"message":"task done"`); n != 4 {
		t.Errorf("%d packages were verified:\n%s", n, log)
	}
}
