//go:build fleet

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"go.temporal.io/sdk/client"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/status"
	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/publish/manifest"
)

// cluster is a Temporal server, a shared store, a hub and workers, each a process of its own that can be killed.
type cluster struct {
	t       *testing.T
	dir     string
	address string
	store   string
	env     []string
	hub     *fakehub.Hub
	server  *process
	minio   *process
	workers []*process
}

// process is a program that can be killed and started again.
type process struct {
	t    *testing.T
	name string
	env  []string
	args []string
	log  string

	mu  sync.Mutex
	cmd *exec.Cmd
}

func (p *process) start() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = p.env, f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// memory is the most that a process that runs has used.
func (p *process) memory() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "unknown"
}

// cpu is the time on processors that a process that runs has used.
func (p *process) cpu() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if err != nil || len(fields) < 13 {
		p.t.Fatalf("%s: %s, %v", p.name, b, err)
	}
	const hertz = 100 // of Linux
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / hertz
}

// program builds a program once: llmexport, the worker, and workers of another version or architecture.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := builds[name]()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	bin = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "fleet-bin-") })

	builds = map[string]func() (string, error){
		"llmexport": builder("llmexport", "../..", "./cmd/llmexport", "test", ""), "worker": builder("worker", ".", ".", "test", ""),
		"other": builder("other", ".", ".", "other", ""), "arm64": builder("arm64", ".", ".", "test", "arm64"),
	}
)

func builder(name, in, pkg, stamp, arch string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := bin()
		if err != nil {
			return "", err
		}
		out := filepath.Join(dir, name)
		flags := "-s -w -X github.com/llmexport/llmexport/pipeline.sources=" + stamp
		cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", out, "-ldflags", flags, pkg)
		cmd.Dir, cmd.Env = in, append(os.Environ(), "CGO_ENABLED=0")
		if arch != "" {
			cmd.Env = append(cmd.Env, "GOARCH="+arch)
		}
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", name, err, text)
		}
		return out, nil
	})
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := bin(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newCluster starts everything but workers. The repositories of the hub are those of [models].
func newCluster(t *testing.T) *cluster {
	t.Helper()
	bin := os.Getenv("TEMPORAL_BIN")
	if bin == "" {
		t.Skip("TEMPORAL_BIN names no temporal")
	}
	c := &cluster{t: t, dir: t.TempDir(), address: port(t), hub: fakehub.New()}
	for name, dir := range models {
		c.model("org/"+name, dir)
	}
	hub := c.hub.Start(t)
	c.env = append(os.Environ(), "HF_ENDPOINT="+hub.URL, "AWS_ACCESS_KEY_ID=testuser", "AWS_SECRET_ACCESS_KEY=testpassword")
	c.store = filepath.Join(c.dir, "store")
	if bin := os.Getenv("MINIO_BIN"); bin != "" {
		c.startMinIO(bin)
	} else {
		t.Log("MINIO_BIN names no minio: the store is a directory")
	}
	host, at, _ := net.SplitHostPort(c.address)
	c.server = c.process("server", bin, "server", "start-dev", "--headless", "--ip", host, "--port", at,
		"--db-filename", filepath.Join(c.dir, "server.db"), "--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL",
		"--log-level", "error")
	c.server.start()
	c.await("the server", func() error { return c.dial().close() })
	return c
}

func (c *cluster) process(name string, args ...string) *process {
	p := &process{t: c.t, name: name, env: c.env, args: args, log: filepath.Join(c.dir, name+".log")}
	c.t.Cleanup(func() {
		p.kill()
		if c.t.Failed() {
			b, _ := os.ReadFile(p.log)
			c.t.Logf("%s:\n%s", name, b[max(0, len(b)-4000):])
		}
	})
	return p
}

func (c *cluster) startMinIO(bin string) {
	at := port(c.t)
	c.store = "s3://bucket/llmexport?endpoint=http://" + at + "&region=us-east-1"
	c.env = append(c.env, "MINIO_ROOT_USER=testuser", "MINIO_ROOT_PASSWORD=testpassword", "MINIO_BROWSER=off")
	c.minio = c.process("minio", bin, "server", "--quiet", "--address", at, filepath.Join(c.dir, "minio"))
	c.minio.start()
	m, err := minio.New(at, &minio.Options{Creds: credentials.NewStaticV4("testuser", "testpassword", ""), Region: "us-east-1"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.await("minio", func() error {
		return m.MakeBucket(c.t.Context(), "bucket", minio.MakeBucketOptions{Region: "us-east-1"})
	})
}

// await repeats a question that a starting program answers with errors at first.
func (c *cluster) await(what string, ask func() error) {
	c.t.Helper()
	var err error
	for range 600 {
		if err = ask(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Fatalf("%s: %v", what, err)
}

// connection is a client of the server.
type connection struct {
	client.Client
	err error
}

func (c *cluster) dial() connection {
	cl, err := client.Dial(client.Options{HostPort: c.address, Logger: quiet{}})
	return connection{cl, err}
}

func (c connection) close() error {
	if c.err == nil {
		c.Close()
	}
	return c.err
}

type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

// worker starts a worker with a cache of its own.
func (c *cluster) worker(name, bin string, flags ...string) *process {
	args := append([]string{bin, "--log", "json", "worker", "--address", c.address, "--store", c.store, "--name", name,
		"--cache", filepath.Join(c.dir, name, "cache")}, flags...)
	if strings.HasSuffix(bin, "arm64") {
		args = append([]string{"qemu-aarch64"}, args...)
	}
	p := c.process(name, args...)
	p.env = append(p.env[:len(p.env):len(p.env)], "HF_HUB_CACHE="+filepath.Join(c.dir, name, "hub"))
	p.start()
	c.workers = append(c.workers, p)
	return p
}

// run runs a command to its end.
func (c *cluster) run(code int, args ...string) string {
	c.t.Helper()
	text, _ := c.command(code, args...)
	return text
}

// cpu runs a command to its end and returns the time on processors that it used.
func (c *cluster) cpu(args ...string) time.Duration {
	c.t.Helper()
	_, state := c.command(0, args...)
	return state.UserTime() + state.SystemTime()
}

// command runs a command to its end; a code of -1 allows every exit code.
func (c *cluster) command(code int, args ...string) (string, *os.ProcessState) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.dir, append(c.env[:len(c.env):len(c.env)], "HF_HUB_CACHE="+filepath.Join(c.dir, "hub"), "TEMPORAL_ADDRESS="+c.address)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if cmd.ProcessState == nil || code >= 0 && cmd.ProcessState.ExitCode() != code {
		c.t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out) + errs.String(), cmd.ProcessState
}

func (c *cluster) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// release makes a release, which must succeed, and tells what failed if it does not.
func (c *cluster) release(worker, file string) string {
	c.t.Helper()
	out, state := c.command(-1, worker, "release", "start", "--wait", file)
	if state.ExitCode() != 0 {
		c.t.Fatalf("%s\n%s", out, c.run(0, worker, "release", "status", file))
	}
	return out
}

// status is that of release status --json.
func (c *cluster) status(bin, release string) (s status.Status) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.run(0, bin, "release", "status", "--json", release)), &s); err != nil {
		c.t.Fatal(err)
	}
	return s
}

// digests returns the digests of packages in a directory.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		m, err := manifest.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Errorf("%s: %v", e.Name(), err)
			continue
		}
		if err := m.VerifyFiles(t.Context(), filepath.Join(dir, e.Name())); err != nil {
			t.Errorf("%s: %v", e.Name(), err)
		}
		out[e.Name()] = string(m.Digest)
	}
	return out
}

// history is the size of the histories of a release.
func (c *cluster) history(release string) (events, bytes int64) {
	cl := c.dial()
	if cl.err != nil {
		c.t.Fatal(cl.err)
	}
	defer cl.Close()
	d, err := cl.DescribeWorkflowExecution(c.t.Context(), flow.ID(release), "")
	if err != nil {
		c.t.Fatal(err)
	}
	return d.GetWorkflowExecutionInfo().GetHistoryLength(), d.GetWorkflowExecutionInfo().GetHistorySizeBytes()
}

// metrics returns what a worker tells Prometheus.
func metrics(ctx context.Context, address string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	return b.String(), err
}
