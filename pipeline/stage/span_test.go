package stage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fakes3"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/shared"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/recipes"
)

// deadHub is a server that nobody runs.
const deadHub = "http://127.0.0.1:1"

// worker is a machine: a cache of its own, and a shared store.
type worker struct {
	dir   string
	store string        // reference of the shared store
	every time.Duration // between offers of unfinished entries
}

// part runs a span for the recipe of w.
func (m worker) part(ctx context.Context, w work, span stage.Span, overrides ...string) (*stage.Part, error) {
	overrides = append(slices.Clone(overrides), "verify.tokenizer.strings=300")
	r, err := recipes.LoadFile(w.recipe(), stage.Sections(), overrides...)
	if err != nil {
		return nil, err
	}
	sh, err := shared.Open(ctx, m.store)
	if err != nil {
		return nil, err
	}
	sh.Every = m.every
	st, err := pipeline.OpenStore(filepath.Join(m.dir, "cache"))
	if err != nil {
		return nil, err
	}
	defer st.Close()
	run, err := stage.New(r, pipeline.Limits{Memory: 1 << 30, Threads: 2})
	if err != nil {
		return nil, err
	}
	defer run.Close()
	st.Shared, run.Store, run.Shared = sh, st, sh
	return run.Part(ctx, span)
}

// machines makes workers that have the hub's cache in directories of their own.
func machines(t *testing.T, store string, n int) []worker {
	t.Helper()
	var list []worker
	for range n {
		list = append(list, worker{dir: t.TempDir(), store: store})
	}
	return list
}

// use makes a worker's cache of hubs that of this process.
func (m worker) use(t *testing.T) { t.Setenv("HF_HUB_CACHE", filepath.Join(m.dir, "hub")) }

const spanSections = "quantize: {method: gptq}\ncalibrate: {tokens: 512, window: 64, probe: 128}\n" +
	"verify: {kl: {max: 1}, perplexity: {windows: 2, window: 64, decode: 4, max_ratio: 10}}"

var allStages = []string{"fetch", "rewrite", "calibrate", "allocate", "quantize", "verify", "sign", "publish"}

// Stages that run on one machine after the other, each with nothing but the shared store, give the package of one run. Only the
// first machine can reach the hub.
func TestSpans(t *testing.T) {
	sections := spanSections
	if testing.Short() {
		sections = unverified + "\nquantize: {method: rtn}"
	}
	w, h, dir := onHub(t, tiny, 3, sections)
	w.must(t)
	want := listing(t, w.out())
	w.unpublish(t)
	h.ResetStats()
	store, endpoint := filepath.Join(t.TempDir(), "shared"), os.Getenv("HF_ENDPOINT")
	list := machines(t, store, len(allStages))
	var last *stage.Part
	for i, s := range allStages {
		list[i].use(t)
		t.Setenv("HF_ENDPOINT", endpoint)
		if i > 0 {
			t.Setenv("HF_ENDPOINT", deadHub)
		}
		span := stage.Span{From: s, Until: s}
		if i%2 == 0 && last != nil { // by the record or the newest
			span.After = last.Record
		}
		if s == "allocate" || s == "sign" { // nothing to do, so nobody runs them
			continue
		}
		p, err := list[i].part(t.Context(), w, span)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if last != nil && len(p.Entries) < len(last.Entries) || p.Package != "small" || p.Commit == "" {
			t.Errorf("%s: %+v", s, p)
		}
		for _, e := range p.Entries[:max(0, len(p.Entries)-1)] {
			if e.From == pipeline.Built && (s != "quantize" || !strings.HasPrefix(e.Name, "codes-")) {
				t.Errorf("%s built %s", s, e.Name)
			}
		}
		last = p
	}
	if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
		t.Errorf("package (-want +got):\n%s", diff)
	}
	if len(last.Published) != 1 || last.Published[0].Digest != last.Manifest {
		t.Errorf("%+v", last)
	}
	for _, name := range fetched(h, dir) {
		if n := h.Sent("org/tiny/" + name); n > 2*fileSize(t, filepath.Join(dir, name)) {
			t.Errorf("%s: %d bytes were fetched", name, n)
		}
	}
	// The publishing machine has taken the package only.
	if names, _ := filepath.Glob(filepath.Join(list[7].dir, "cache", "*-*")); len(names) != 1 || !strings.Contains(names[0], "package-") {
		t.Errorf("the publisher has %q", names)
	}
	if _, err := os.Stat(filepath.Join(list[7].dir, "hub")); err == nil {
		t.Error("the publisher has a cache of the hub")
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// Machines that reach the hub take the weights from the store, and the hub decides which.
func TestSpansFetchOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	w, h, dir := onHub(t, tiny, 3, unverified+"\nquantize: {method: rtn}")
	list := machines(t, filepath.Join(t.TempDir(), "shared"), 3)
	for i, m := range list {
		m.use(t)
		h.ResetStats()
		p, err := m.part(t.Context(), w, stage.Span{Until: "quantize"})
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		if i == 0 {
			want = 3
		}
		if got := fetched(h, dir); len(got) != want {
			t.Errorf("machine %d fetched %q from the hub", i, got)
		}
		if from := p.Entries[len(p.Entries)-1].From; (from == pipeline.Built) != (i == 0) {
			t.Errorf("machine %d: weights are %s", i, from)
		}
	}
	// The branch moves: the next first stage takes the new commit, and stages after it that of their record.
	before, err := list[1].part(t.Context(), w, stage.Span{Until: "fetch"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("---\nlicense: mit\n---\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	commit, err := h.Repo("org/tiny").CommitDir("main", dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := list[1].part(t.Context(), w, stage.Span{Until: "rewrite"})
	if err != nil || after.Commit != commit || before.Commit == commit {
		t.Errorf("%+v, %v", after, err)
	}
	pinned, err := list[2].part(t.Context(), w, stage.Span{From: "rewrite", Until: "rewrite", After: before.Record})
	if err != nil || pinned.Commit != before.Commit {
		t.Errorf("%+v, %v", pinned, err)
	}
}

// Spans that cannot work say which stage has to run first, or what is wrong with them.
func TestSpansAbsent(t *testing.T) {
	t.Parallel()
	w := newWork(t, tiny, unverified+"\nquantize: {method: rtn}")
	m := worker{dir: t.TempDir(), store: filepath.Join(t.TempDir(), "shared")}
	absent := (*stage.AbsentError)(nil)
	for from, first := range map[string]string{"rewrite": "fetch", "quantize": "rewrite", "verify": "quantize", "sign": "verify", "publish": "verify"} {
		_, err := m.part(t.Context(), w, stage.Span{From: from, Until: from})
		if !errors.As(err, &absent) || absent.Stage != first || stage.Final(err) != "" || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", from, err)
		}
	}
	for _, span := range []stage.Span{{From: "bake"}, {Until: "bake"}, {From: "verify", Until: "fetch"}, {From: "rewrite", After: "newest"}} {
		if _, err := m.part(t.Context(), w, span); stage.Final(err) != stage.FinalRecipe {
			t.Errorf("%+v: %v", span, err)
		}
	}
	p, err := m.part(t.Context(), w, stage.Span{Until: "quantize"})
	if err != nil {
		t.Fatal(err)
	}
	// Another recipe has other results; a record is not enough to publish another package.
	if _, err := m.part(t.Context(), w, stage.Span{From: "verify"}, "quantize.bits=8"); !errors.As(err, &absent) || absent.Stage != "quantize" {
		t.Errorf("another recipe: %v", err)
	}
	if _, err := m.part(t.Context(), w, stage.Span{From: "verify", After: p.Record}, "quantize.bits=8"); !errors.As(err, &absent) || absent.Stage != "quantize" {
		t.Errorf("another recipe with this record: %v", err)
	}
	if _, err := m.part(t.Context(), w, stage.Span{From: "publish", After: p.Record}, "name=other"); stage.Final(err) != stage.FinalRecipe {
		t.Errorf("another package: %v", err)
	}
	if _, err := m.part(t.Context(), w, stage.Span{From: "publish", After: p.Record}); !errors.As(err, &absent) || absent.Stage != "verify" {
		t.Errorf("not verified: %v", err)
	}
}

// childSpan, in the environment, makes this binary a machine that a test kills: directories of the work and the machine, store, and
// the last stage.
const childSpan = "STAGE_TEST_SPAN"

// A machine that is killed while it quantizes leaves what another one, with nothing of its own, goes on from. The package is that
// of one run.
func TestSpanTakenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, tiny, spanSections)
	w.must(t)
	want := listing(t, w.out())
	w.unpublish(t)
	store, resumed := "", 0
	for attempts := 5; store == ""; attempts-- {
		if attempts == 0 {
			t.Fatal("every machine was done before it could be killed")
		}
		store = filepath.Join(t.TempDir(), "shared")
		for _, codes := range []int{3, 6} { // of 28
			if !killMachine(t, w, store, codes) {
				store = ""
				break
			}
		}
	}
	var log bytes.Buffer
	ctx := zerolog.New(zerolog.SyncWriter(&log)).WithContext(t.Context())
	m := worker{dir: t.TempDir(), store: store}
	if _, err := m.part(ctx, w, stage.Span{}); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(log.Bytes()) {
		var x struct {
			Matrices int
			Message  string
		}
		if json.Unmarshal(line, &x) == nil && x.Message == "resuming after the matrices of an earlier run" {
			resumed = x.Matrices
		}
	}
	if resumed == 0 { // the journal is read before the files, so it may list fewer
		t.Errorf("%d matrices were taken over: %s", resumed, &log)
	}
	if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
		t.Errorf("package (-want +got):\n%s", diff)
	}
}

// killMachine lets a machine quantize until the store has a number of files with codes, and kills it. It reports whether the machine
// was still at work.
func killMachine(t *testing.T, w work, store string, codes int) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), childSpan+"="+strings.Join([]string{w.dir, t.TempDir(), store, "quantize"}, "\n"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for offeredCodes(store) < codes {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v: %s", err, &stderr)
			}
			return false
		case <-time.After(time.Millisecond):
		}
	}
	_ = cmd.Process.Kill()
	return (<-ended) != nil
}

// offeredCodes counts the files with codes in the unfinished entry of a store in a directory.
func offeredCodes(store string) int {
	names, _ := filepath.Glob(filepath.Join(store, "texts", "codes-*.partial"))
	if len(names) == 0 {
		return 0
	}
	b, _ := os.ReadFile(names[0])
	return bytes.Count(b, []byte(".codes"))
}

// A span that does not publish needs neither the places nor the rights to publish there.
func TestSpansApart(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	s := placetest.NewS3(t)
	publish := fmt.Sprintf("publish: [{s3: s3://%s/out, endpoint: %q, region: us-east-1, private: true}]", fakes3.Bucket, s.URL)
	w, _, _ := onHub(t, tiny, 1, unverified+"\nquantize: {method: rtn}\n"+publish)
	m := worker{dir: t.TempDir(), store: filepath.Join(t.TempDir(), "shared")}
	m.use(t)
	if _, err := m.part(t.Context(), w, stage.Span{Until: "sign"}); err != nil {
		t.Fatal(err)
	}
	if asked := s.Requests(); len(asked) > 0 {
		t.Errorf("asked %q", asked)
	}
	p, err := m.part(t.Context(), w, stage.Span{From: "publish"})
	if err != nil || len(p.Published) != 1 || len(s.Keys()) == 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// A package that fails verification has no record, so nobody can publish it.
func TestSpansVerdict(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, tiny, "quantize: {method: rtn, bits: 2}\nverify: {kl: {max: 1e-9}, perplexity: {windows: 2, window: 64, decode: 4, max_ratio: 10}}")
	m := worker{dir: t.TempDir(), store: filepath.Join(t.TempDir(), "shared")}
	for range 2 {
		if _, err := m.part(t.Context(), w, stage.Span{Until: "publish"}); stage.Final(err) != stage.FinalVerdict {
			t.Fatal(err)
		}
	}
	if _, err := m.part(t.Context(), w, stage.Span{From: "publish"}); !errors.As(err, new(*stage.AbsentError)) {
		t.Error(err)
	}
}

// A run makes the same package with a shared store, without one that it can reach, and with one that is gone meanwhile.
func TestRunWithStore(t *testing.T) {
	t.Parallel()
	w := newWork(t, tiny, unverified+"\nquantize: {method: rtn}")
	w.must(t)
	want := listing(t, w.out())
	w.unpublish(t)
	store := filepath.Join(t.TempDir(), "shared")
	sh, err := shared.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	st, err := pipeline.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	r, err := recipes.LoadFile(w.recipe(), stage.Sections(), "verify.tokenizer.strings=300")
	if err != nil {
		t.Fatal(err)
	}
	run, err := stage.New(r, pipeline.Limits{Memory: 1 << 30, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	st.Shared, run.Store, run.Shared = sh, st, sh
	if _, err := run.Execute(zerolog.New(zerolog.SyncWriter(&log)).WithContext(t.Context()), ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
		t.Errorf("package (-want +got):\n%s", diff)
	}
	if n := strings.Count(log.String(), "the shared store cannot be used"); n != 1 {
		t.Errorf("%d warnings: %s", n, &log)
	}
}

// A machine that may not ask the hub makes the same package of a gated repository from the checkpoint in the store, and says so. One
// that finds the checkpoint neither here nor there fails.
func TestSpansOffline(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	w, h, _ := onHub(t, tiny, 2, unverified+"\nquantize: {method: rtn}")
	h.Repo("org/tiny").SetGated("auto")
	t.Setenv("HF_TOKEN", fakehub.Token)
	list := machines(t, filepath.Join(t.TempDir(), "shared"), 2)
	list[0].use(t)
	online, err := list[0].part(t.Context(), w, stage.Span{Until: "verify"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	list[1].use(t)
	var log bytes.Buffer
	ctx := zerolog.New(zerolog.SyncWriter(&log)).WithContext(t.Context())
	offline, err := list[1].part(ctx, w, stage.Span{Until: "verify"})
	if err != nil || offline.Manifest != online.Manifest || offline.Commit != online.Commit || offline.Record != online.Record {
		t.Errorf("%+v, want %+v: %v", offline, online, err)
	}
	if !strings.Contains(log.String(), "using the checkpoint in the shared store") {
		t.Errorf("log %s", &log)
	}
	if _, err := list[1].part(t.Context(), w, stage.Span{Until: "verify"}, "model.revision=other"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another revision: %v", err)
	}
}

// Weights that are damaged in the store come from the hub, and the store is mended.
func TestSpansPoisonedCheckpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	w, h, dir := onHub(t, tiny, 2, unverified+"\nquantize: {method: rtn}")
	store := filepath.Join(t.TempDir(), "shared")
	list := machines(t, store, 3)
	list[0].use(t)
	if _, err := list[0].part(t.Context(), w, stage.Span{Until: "fetch"}); err != nil {
		t.Fatal(err)
	}
	_, sum, err := digest.File(t.Context(), filepath.Join(dir, "model-00001-of-00002.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(store, "blobs", sum.Hex()[:2], sum.Hex())
	change(t, blob, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	for i, want := range []int{1, 0} {
		list[i+1].use(t)
		h.ResetStats()
		var log bytes.Buffer
		if _, err := list[i+1].part(zerolog.New(zerolog.SyncWriter(&log)).WithContext(t.Context()), w, stage.Span{Until: "fetch"}); err != nil {
			t.Fatal(err)
		}
		if got := fetched(h, dir); len(got) != want {
			t.Errorf("machine %d fetched %q from the hub", i+1, got)
		}
		if told := strings.Contains(log.String(), "the stored copy cannot be used"); told != (want > 0) {
			t.Errorf("machine %d: %s", i+1, &log)
		}
	}
	if _, now, err := digest.File(t.Context(), blob); err != nil || now != sum {
		t.Errorf("the store still has %s, %v", now, err)
	}
}

// What another machine has done is found without the checkpoint, which is neither at the hub nor in the store any more.
func TestSpansDone(t *testing.T) {
	w, _, _ := onHub(t, tiny, 2, unverified+"\nquantize: {method: rtn}")
	store := filepath.Join(t.TempDir(), "shared")
	list := machines(t, store, 3)
	list[0].use(t)
	first, err := list[0].part(t.Context(), w, stage.Span{Until: "fetch"})
	if err != nil {
		t.Fatal(err)
	}
	want, err := list[0].part(t.Context(), w, stage.Span{From: "rewrite", Until: "verify"})
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := filepath.Glob(filepath.Join(store, "texts", "checkpoint-*"))
	for _, at := range kept {
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	list[1].use(t)
	for _, span := range []stage.Span{{From: "rewrite", Until: "verify"}, {From: "verify", Until: "verify"},
		{From: "quantize", Until: "quantize", After: first.Record}} {
		got, err := list[1].part(t.Context(), w, span)
		if err != nil {
			t.Errorf("%+v: %v", span, err)
			continue
		}
		verified := got.Manifest == want.Manifest && got.Record == want.Record && got.Report != "" && fileSize(t, got.Report) > 0
		if verified != (span.Until == "verify") || got.Commit != want.Commit {
			t.Errorf("%+v: %+v, want %+v", span, got, want)
		}
	}
	// With the package gone, it has to be made, which needs the checkpoint.
	gone, _ := filepath.Glob(filepath.Join(store, "texts", "package-*"))
	if err := os.Remove(gone[0]); err != nil {
		t.Fatal(err)
	}
	list[2].use(t)
	if _, err := list[2].part(t.Context(), w, stage.Span{From: "verify", Until: "verify"}); err == nil {
		t.Error("verified without a checkpoint")
	}
}
