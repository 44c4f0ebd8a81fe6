package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/shared"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// machine is a host with an empty cache and a store that it shares.
func machine(t *testing.T, store string) *Host {
	t.Helper()
	sh, err := shared.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	code, err := pipeline.Code()
	if err != nil {
		t.Fatal(err)
	}
	return &Host{Name: t.Name(), Code: code, Store: store, Shared: sh, Cache: filepath.Join(t.TempDir(), "cache"), Threads: 2, Log: zerolog.Nop()}
}

// do runs a task as the SDK does.
func (h *Host) do(task flow.Task) (d flow.Done, beats int, err error) {
	var s testsuite.WorkflowTestSuite
	s.SetLogger(Logger(zerolog.Nop()))
	e := s.NewTestActivityEnvironment()
	e.RegisterActivityWithOptions(h.Stage, activity.RegisterOptions{Name: flow.Stage})
	e.SetOnActivityHeartbeatListener(func(*activity.Info, converter.EncodedValues) { beats++ })
	v, err := e.ExecuteActivity(flow.Stage, task)
	if err == nil {
		err = v.Get(&d)
	}
	return d, beats, err
}

const tiny = `version: 1
name: a
model: {path: %s}
limits: {memory: 512MiB}
quantize: {method: rtn, block: 32}
verify: {kl: {max: %s}, layers: {max: 9}, perplexity: {window: 16, windows: 1, decode: 2, max_source: 1e9, max_ratio: 1e9}}
publish: [{dir: '%s/{name}'}]
variants: [{name: b, quantize: {bits: 8}}]
`

func (h *Host) task(t *testing.T, kl, out string) flow.Task {
	t.Helper()
	model, err := filepath.Abs("../../../../pipeline/arch/testdata/llama")
	if err != nil {
		t.Fatal(err)
	}
	return flow.Task{
		Frame:      flow.Frame{Release: "r", Code: h.Code, Store: h.Store, Heartbeat: time.Second, Channel: "stable"},
		Repository: "org/a", Package: "b", Recipe: flow.Recipe{File: filepath.Join(out, "a.yaml"), Text: fmt.Sprintf(tiny, model, kl, out)},
	}
}

// Four machines with nothing in common but the store make a package, and one of them makes it again.
func TestStages(t *testing.T) {
	t.Parallel()
	store, out := t.TempDir(), t.TempDir()
	var last flow.Done
	for _, span := range []struct{ from, until string }{{"", "rewrite"}, {"", "quantize"}, {"verify", "verify"}, {"sign", "publish"}} {
		h := machine(t, store)
		task := h.task(t, "9", out)
		task.From, task.Until = span.from, span.until
		if span.from != "" {
			task.After = last.Record
		}
		d, beats, err := h.do(task)
		if err != nil || d.Record == "" || beats == 0 || d.Worker != h.Name {
			t.Fatalf("%v: %+v, %d heartbeats, %v", span, d, beats, err)
		}
		if span.until == "quantize" && (d.Built == 0 || d.Pulled == 0) {
			t.Errorf("built %d, pulled %d", d.Built, d.Pulled)
		}
		if span.until == "verify" {
			again := machine(t, store)
			task.Again = true
			made, _, err := again.do(task)
			if err != nil || made.Manifest != d.Manifest || d.Manifest == "" {
				t.Fatalf("%+v, %v, not %s", made, err, d.Manifest)
			}
			if found, err := filepath.Glob(filepath.Join(again.Cache+"-again", "package-*", "done.json")); err != nil || len(found) != 1 {
				t.Errorf("the package was not made again: %v, %v", found, err)
			}
		}
		last = d
	}
	m, err := manifest.Open(filepath.Join(out, "b"))
	if err != nil {
		t.Fatal(err)
	}
	if len(last.Places) != 1 || len(last.Channels) != 1 || last.Channels[0].Name != "stable" || last.Channels[0].Shelf != out {
		t.Errorf("%+v", last)
	}
	h := machine(t, store)
	var s testsuite.WorkflowTestSuite
	s.SetLogger(Logger(zerolog.Nop()))
	e := s.NewTestActivityEnvironment()
	e.RegisterActivityWithOptions(h.Move, activity.RegisterOptions{Name: flow.Move})
	e.RegisterActivityWithOptions(h.Withdraw, activity.RegisterOptions{Name: flow.Withdraw})
	v, err := e.ExecuteActivity(flow.Move, last.Channels[0])
	var move publish.Move
	if err == nil {
		err = v.Get(&move)
	}
	if err != nil || move.Status != channel.Moved || move.Packages[0] != m.Name {
		t.Errorf("%+v, %v", move, err)
	}
	if _, err = e.ExecuteActivity(flow.Withdraw, last.Channels[0]); flow.KindOf(err) != flow.Superseded {
		t.Errorf("the first release was withdrawn: %v", err)
	}
}

// Failures have the types that workflows decide by.
func TestFailures(t *testing.T) {
	t.Parallel()
	store, out := t.TempDir(), t.TempDir()
	h := machine(t, store)
	good := h.task(t, "0", out) // no package comes that close
	quantized := good
	quantized.Until = "quantize"
	d, _, err := h.do(quantized)
	if err != nil {
		t.Fatal(err)
	}
	verify := good
	verify.From, verify.Until, verify.After = "verify", "verify", d.Record
	if _, _, err := h.do(verify); flow.KindOf(err) != flow.Verdict || !strings.Contains(err.Error(), "kl, decode failed") {
		t.Errorf("a failed check: %v", err)
	}
	for name, change := range map[string]func(*flow.Task){
		flow.Mistake: func(x *flow.Task) { x.Set = []string{"variants[0].quantize.bits=9"} },
		flow.Absent: func(x *flow.Task) {
			x.From, x.Until, x.Set = "verify", "verify", []string{"quantize.bits=6", "variants[0].quantize.bits=6"}
		},
		flow.Unsupported: func(x *flow.Task) { x.Set = []string{fmt.Sprintf("model.path=%q", unsupported(t))} },
		"":               func(x *flow.Task) { x.Code = "another" },
	} {
		x := good
		x.Until = "quantize"
		change(&x)
		if _, _, err := h.do(x); err == nil || flow.KindOf(err) != name {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, x := range []struct {
		err  error
		kind string
	}{
		{&recipes.Error{Message: "x"}, flow.Mistake}, {fmt.Errorf("x: %w", tensor.ErrUnsupported), flow.Unsupported},
		{channel.ErrNoEarlier, flow.Superseded}, {&publish.MovedOnError{}, flow.Superseded}, {errors.New("x"), ""},
	} {
		if got := h.failure(t.Context(), x.err); flow.KindOf(got) != x.kind {
			t.Errorf("%v is %v", x.err, got)
		}
	}
	long := h.failure(t.Context(), errors.New(strings.Repeat("x", 1<<20)+"\x1b"))
	if len(long.Error()) > 2*maxMessage {
		t.Errorf("a message of %d bytes", len(long.Error()))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStopping)
	if err := h.failure(ctx, context.Cause(ctx)); temporal.IsCanceledError(err) || flow.KindOf(err) != "" {
		t.Errorf("a worker that stops: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := h.failure(ctx, ctx.Err()); !temporal.IsCanceledError(err) {
		t.Errorf("a cancelled task: %v", err)
	}
}

// unsupported is the directory of a model of no family.
func unsupported(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"config.json": `{"model_type": "unheard-of", "architectures": ["X"]}`, "model.safetensors": "\x02\x00\x00\x00\x00\x00\x00\x00{}",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A full disk empties the cache and closes the gate; a task that ends well opens it.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	h := machine(t, t.TempDir())
	task := h.task(t, "9", t.TempDir())
	task.Until = "quantize"
	if _, _, err := h.do(task); err != nil {
		t.Fatal(err)
	}
	for i, err := range []error{&disk.FullError{}, fmt.Errorf("writing: %w", syscall.ENOSPC)} {
		st, oerr := pipeline.OpenStore(h.Cache)
		if oerr != nil {
			t.Fatal(oerr)
		}
		if err := errors.Join(h.tidy(t.Context(), st, err), st.Close()); err != nil {
			t.Fatal(err)
		}
		if d, _ := h.gate.closed(time.Now()); d <= 0 || d > firstClosed<<i {
			t.Errorf("closed for %v", d)
		}
		if list, err := pipeline.List(h.Cache); err != nil || len(list) != 0 {
			t.Errorf("left: %+v, %v", list, err)
		}
	}
	if _, _, err := h.do(task); err != nil {
		t.Fatal(err)
	}
	if d, _ := h.gate.closed(time.Now()); d != 0 {
		t.Errorf("still closed for %v", d)
	}
	h.CacheSize = 1
	if _, _, err := h.do(task); err != nil {
		t.Fatal(err)
	}
	if list, err := pipeline.List(h.Cache); err != nil || len(list) == 0 { // in use until the store is closed
		t.Logf("%+v, %v", list, err)
	}
}

func TestGate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g := &gate{}
	var got []time.Duration
	for range 7 {
		got = append(got, g.shut(now))
	}
	m := time.Minute
	if d := cmp.Diff([]time.Duration{m / 2, m, 2 * m, 4 * m, 8 * m, 16 * m, 16 * m}, got); d != "" {
		t.Error(d)
	}
	tuner, err := slots(1, g)
	if err != nil {
		t.Fatal(err)
	}
	s := tuner.GetActivityTaskSlotSupplier()
	if s.TryReserveSlot(nil) != nil {
		t.Error("a slot behind a closed gate")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ReserveSlot(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	got1 := make(chan error)
	go func() {
		_, err := s.ReserveSlot(t.Context(), nil)
		got1 <- err
	}()
	g.open()
	if err := <-got1; err != nil {
		t.Error(err)
	}
	if g.shut(now) != firstClosed {
		t.Error("the streak goes on after the gate was open")
	}
}

// Metrics are in Prometheus form, with labels that differ between calls.
func TestMetrics(t *testing.T) {
	t.Parallel()
	h, stop, err := Metrics(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	h.WithTags(map[string]string{"queue": "disk"}).Counter("llmexport_tasks").Inc(2)
	h.WithTags(map[string]string{"queue": "disk", "outcome": "done"}).Timer("llmexport_task_time").Record(time.Second)
	if _, _, err := Metrics(t.Context(), "256.0.0.1:1"); err == nil {
		t.Error("an address that cannot be")
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	l := Logger(zerolog.New(&b))
	l.Warn("odd", "Attempt", 3, "Error", io.EOF, "alone")
	var x map[string]any
	if err := json.Unmarshal([]byte(b.String()), &x); err != nil || x["Attempt"] != "3" || x["Error"] != "EOF" || x["message"] != "temporal: odd" {
		t.Errorf("%s, %v", b.String(), err)
	}
}
