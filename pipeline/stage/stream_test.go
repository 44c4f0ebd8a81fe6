package stage_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/synthetic/shard"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// onHub serves a copy of a checkpoint, its weights in shards, as org/tiny, and makes the work of a recipe for it with a
// cache of its own.
func onHub(t *testing.T, checkpoint string, shards int, sections string) (work, *fakehub.Hub, string) {
	t.Helper()
	return onObservedHub(t, checkpoint, shards, sections, nil)
}

// onObservedHub is onHub with a function that is called before each request is answered.
func onObservedHub(t *testing.T, checkpoint string, shards int, sections string, observe func(fakehub.Request)) (work, *fakehub.Hub, string) {
	t.Helper()
	dir := inShards(t, checkpoint, shards)
	h := fakehub.New(fakehub.Options{LFSFrom: 1 << 10, Observe: observe})
	if _, err := h.Repo("org/tiny").CommitDir("main", dir, nil); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HF_ENDPOINT", h.Start(t).URL)
	for _, name := range []string{"HF_TOKEN", "HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN"} {
		t.Setenv(name, "")
	}
	w := work{t.TempDir()}
	t.Setenv("HF_HUB_CACHE", filepath.Join(w.dir, "hub"))
	t.Setenv("HF_HOME", filepath.Join(w.dir, "home"))
	text := "version: 1\nname: small\nmodel: {repo: org/tiny}\n" + sections + "\n"
	if err := os.WriteFile(w.recipe(), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return w, h, dir
}

// inShards copies a checkpoint, its weights dealt out to shards, so that neighbours lie far from each other.
func inShards(t *testing.T, checkpoint string, n int) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir(checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), "safetensors") || !e.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(checkpoint, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, e.Name()), b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	src, err := safetensors.OpenDir(checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	name := func(i int) string { return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n) }
	lists, index := make([][]tensor.Info, n), map[string]string{}
	for i, info := range src.Tensors() {
		lists[i%n] = append(lists[i%n], info)
		index[info.Name] = name(i % n)
	}
	for i, list := range lists {
		var b bytes.Buffer
		if err := shard.Write(&b, list, func(name string) (io.Reader, error) { return src.Open(name) }); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name(i)), b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{}, "weight_map": index})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), text, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fetched lists the shards of which more than a header was served.
func fetched(h *fakehub.Hub, dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".safetensors") && h.Sent("org/tiny/"+e.Name()) >= info.Size() {
			names = append(names, e.Name())
		}
	}
	return names
}

// none demands that no shard is left below a directory.
func none(t *testing.T, dir string) {
	t.Helper()
	for name := range tree(t, dir) {
		if strings.Contains(name, ".safetensors") && !strings.HasSuffix(name, ".json") {
			t.Errorf("%s is left in %s", name, dir)
		}
	}
}

// A package whose source passes by is the one that is made of a source on the disk, byte for byte, whatever lies in which
// shard: fused experts, views and fp8 codes with their scales included.
func TestStreamed(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, checkpoint := range []string{tiny, families + "qwen3-untied", families + "gpt_oss", families + "phi3", families + "bloom",
		families + "qwen3_moe", families + "qwen2-tied"} {
		t.Run(filepath.Base(checkpoint), func(t *testing.T) {
			w, _, _ := onHub(t, checkpoint, 5, "quantize: {block: auto}\nverify: {enabled: false}\nfetch: {keep: false}")
			w.must(t)
			got := listing(t, w.out())
			none(t, w.dir)
			w.must(t, "fetch.keep=true", "publish[0].dir=kept")
			if want := listing(t, filepath.Join(w.dir, "kept")); got != want {
				t.Errorf("streamed\n%s\nfrom the disk\n%s", got, want)
			}
		})
	}
}

// What can be verified without the float model is; the weights are compared while they are written.
func TestStreamedVerified(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, method := range []string{"rtn", "hqq", "search"} {
		t.Run(method, func(t *testing.T) {
			w, _, dir := onHub(t, tiny, 5, "quantize: {method: "+method+", bits: 8}\nverify: {perplexity: {window: 64, windows: 1}}\nfetch: {keep: false}")
			w.must(t)
			m, err := manifest.Open(w.out())
			if err != nil {
				t.Fatal(err)
			}
			state := map[string]string{}
			for _, c := range m.Checks {
				switch {
				case c.Skipped:
					state[c.Name] = "skipped"
				case c.Passed:
					state[c.Name] = "passed"
				}
				share := c.Value["worst_share_of_bound"]
				if c.Name == "weights" && (c.Value["tensors"] != float64(len(m.Tensors)) || !(share > 0 && share <= 1)) {
					t.Errorf("weights: %v %s", c.Value, c.Detail)
				}
			}
			for name, want := range map[string]string{
				"layout": "passed", "coverage": "passed", "weights": "passed", "tokenizer": "passed", "golden": "passed", "perplexity": "passed",
				"activations": "passed", "decode": "passed", "graph": "skipped", "layers": "skipped", "kl": "skipped", "source": "skipped",
			} {
				if state[name] != want {
					t.Errorf("%s is %q, want %q", name, state[name], want)
				}
			}
			if !m.Verified || m.Source.Revision == "" {
				t.Errorf("verified %v, revision %q", m.Verified, m.Source.Revision)
			}
			// The manifest has the digest of every shard all the same.
			for _, f := range m.Source.Files {
				b, err := os.ReadFile(filepath.Join(dir, f.Name))
				if sum := fmt.Sprintf("%x", sha256.Sum256(b)); err != nil || sum != f.SHA256 {
					t.Errorf("%s: %s, %v", f.Name, f.SHA256, err)
				}
			}
			// The recipe in the package says how it was verified, so that it can be made again.
			r, err := recipes.Load(m.Recipe, "recipe.json", stage.Sections())
			if err != nil {
				t.Fatal(err)
			}
			f := stage.NewFetch()
			if err := r.Stages["fetch"].Decode(f); err != nil || f.Keep {
				t.Errorf("the recipe does not say that the source was not kept: %v", err)
			}
		})
	}
}

// One shard is here at a time and one is on its way, as far as nothing spans more of them; plan's bound holds.
func TestStreamedDisk(t *testing.T) {
	const shards = 20
	var cache atomic.Value
	var most atomic.Int64
	var looked atomic.Bool // where shards are
	w, _, dir := onObservedHub(t, families+"qwen3-untied", shards, "quantize: {block: auto}\nverify: {enabled: false}\nfetch: {keep: false}",
		func(fakehub.Request) {
			held := int64(0)
			dirs, _ := filepath.Glob(filepath.Join(cache.Load().(string), "weights-*", "source"))
			for _, dir := range dirs {
				looked.Store(true)
				entries, _ := os.ReadDir(dir)
				for _, e := range entries {
					if st, err := e.Info(); err == nil {
						held += st.Size()
					}
				}
			}
			for before := most.Load(); held > before && !most.CompareAndSwap(before, held); before = most.Load() {
			}
		})
	cache.Store(w.cache())
	var total, largest int64
	names, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(names) != shards {
		t.Fatalf("%d shards, %v", len(names), err)
	}
	for _, name := range names {
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		total, largest = total+st.Size(), max(largest, st.Size())
	}
	w.must(t)
	if got := most.Load(); !looked.Load() || got > 2*largest {
		t.Errorf("%d bytes of shards were on the disk when another was asked for (looked: %v), of %d; the largest has %d", got, looked.Load(), total, largest)
	}
	t.Logf("%d of %d bytes, the largest shard has %d", most.Load(), total, largest)
	none(t, w.dir)
}

// A run that was interrupted continues with the missing items, and fetches only their shards.
func TestStreamedResume(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	w, h, dir := onHub(t, tiny, 6, "quantize: {block: auto}\nverify: {enabled: false}\nfetch: {keep: false}")
	h.Fault(fakehub.Rule{Fault: fakehub.Status, Status: 404, Path: "*00004-of-00006*", Server: "storage", Skip: 1})
	if _, err := w.run(t); err == nil {
		t.Fatal("a shard that is gone")
	}
	first := fetched(h, dir)
	lines := journalLines(w)
	if len(first) < 3 || lines == 0 {
		t.Fatalf("fetched %v, %d lines in the journal", first, lines)
	}
	h.ClearFaults()
	h.ResetStats()
	w.must(t)
	second := fetched(h, dir)
	again := slices.DeleteFunc(slices.Clone(first), func(n string) bool { return !slices.Contains(second, n) })
	if len(second) != 6-len(first)+len(again) || len(again) > 1 {
		t.Errorf("fetched %v, and then %v", first, second)
	}
	got := listing(t, w.out())
	none(t, w.dir)
	w.must(t, "fetch.keep=true", "publish[0].dir=kept")
	if want := listing(t, filepath.Join(w.dir, "kept")); got != want {
		t.Errorf("resumed\n%s\nfrom the disk\n%s", got, want)
	}
}

// A run that is killed at any moment, several times, ends in the same package.
func TestStreamedKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	w, h, _ := onHub(t, tiny, 6, "quantize: {block: auto}\nverify: {enabled: false}\nfetch: {keep: false}")
	h.Fault(fakehub.Rule{Fault: fakehub.Slow, Rate: 30 << 20, Path: "*.safetensors"})
	kills := 0
	for _, when := range []func(time.Time) bool{
		exists(w.cache(), "weights-*", "source", "*.incomplete"), lines(1, w.cache(), "weights-*", "journal"), exists(w.cache(), "weights-*", "source", "*00002*"),
		lines(12, w.cache(), "weights-*", "journal"), exists(w.cache(), "weights-*", "source", "*00005*"), lines(30, w.cache(), "weights-*", "journal"),
	} {
		if killed(t, w, "2", when) {
			kills++
		}
		wholeOrAbsent(t, w.out())
	}
	h.ClearFaults()
	w.must(t)
	got := listing(t, w.out())
	none(t, w.cache())
	w.must(t, "fetch.keep=true", "publish[0].dir=kept")
	if want := listing(t, filepath.Join(w.dir, "kept")); got != want {
		t.Errorf("killed\n%s\nfrom the disk\n%s", got, want)
	}
	if kills < 3 {
		t.Errorf("only %d runs were killed", kills)
	}
}

// A damaged journal or file is not trusted.
func TestStreamedDamagedPartial(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, name := range []string{"journal", "llm.mnn.weight"} {
		t.Run(name, func(t *testing.T) {
			w, h, _ := onHub(t, tiny, 6, "quantize: {block: auto}\nverify: {enabled: false}\nfetch: {keep: false}")
			h.Fault(fakehub.Rule{Fault: fakehub.Status, Status: 404, Path: "*00004-of-00006*", Server: "storage", Skip: 1})
			if _, err := w.run(t); err == nil {
				t.Fatal("a shard that is gone")
			}
			h.ClearFaults()
			files, _ := filepath.Glob(filepath.Join(w.cache(), "weights-*", name))
			if len(files) != 1 {
				t.Fatalf("%v", files)
			}
			change(t, files[0], func(b []byte) []byte {
				for i := 0; i < len(b); i += 97 {
					b[i] ^= 0x55
				}
				return b
			})
			w.must(t)
			got := listing(t, w.out())
			w.must(t, "fetch.keep=true", "publish[0].dir=kept")
			if want := listing(t, filepath.Join(w.dir, "kept")); got != want {
				t.Errorf("resumed\n%s\nfrom the disk\n%s", got, want)
			}
		})
	}
}

// A shard that is not what the hub lists is never read; nothing is published and no wrong file keeps a name.
func TestStreamedWrongBytes(t *testing.T) {
	for _, fault := range []fakehub.Rule{
		{Fault: fakehub.Flip, After: 2000, Skip: 1},
		{Fault: fakehub.Changed, Skip: 1},
		{Fault: fakehub.Long, Bytes: 5, Skip: 1},
		{Fault: fakehub.Endless, Skip: 1},
	} {
		t.Run(string(fault.Fault), func(t *testing.T) {
			w, h, _ := onHub(t, families+"qwen3-untied", 2, "quantize: {block: auto}\nverify: {enabled: false}\nfetch: {keep: false}")
			fault.Path, fault.Server = "*00002-of-00002*", "storage"
			h.Fault(fault)
			if _, err := w.run(t); err == nil {
				if fault.Fault != fakehub.Long && fault.Fault != fakehub.Endless { // whose bytes are right
					t.Fatal("no error")
				}
				return
			}
			nothing(t, w)
			for name := range tree(t, w.dir) {
				if strings.HasSuffix(name, "00002-of-00002.safetensors") {
					t.Errorf("%s has its name", name)
				}
			}
		})
	}
}

// Tied tensors that differ are found although they are never here together.
func TestStreamedTies(t *testing.T) {
	w, h, dir := onHub(t, families+"qwen3-untied", 3, "quantize: {block: auto}\nverify: {enabled: false}\nfetch: {keep: false}")
	checkpoint{t, dir}.set("config.json", "tie_word_embeddings", true)
	if _, err := h.Repo("org/tiny").CommitDir("main", dir, nil); err != nil {
		t.Fatal(err)
	}
	_, err := w.run(t)
	if !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), "ties it to") {
		t.Fatalf("%v", err)
	}
	nothing(t, w)
}

// What needs the float model before or after it passes is refused at its place in the recipe, before anything is fetched.
func TestStreamedRefused(t *testing.T) {
	for _, c := range []struct{ sections, at string }{
		{"quantize: {method: gptq}", "quantize.method"},
		{"quantize: {method: [awq, rtn]}", "quantize.method"},
		{"quantize: {method: [rotation, rtn]}", "quantize.method"},
		{"quantize: {method: omniquant}", "quantize.method"},
		{"quantize: {budget: {bpw: 5}}", "quantize.budget"},
		{"verify: {perplexity: {max_ratio: 1.1}}", "verify.perplexity.max_ratio"},
		{"verify: {kl: {max: 0.1}}", "verify.kl.max"},
		{"verify: {layers: {max: 0.1}}", "verify.layers.max"},
		{"verify: {golden: x.json}", "verify.golden"},
	} {
		t.Run(c.at, func(t *testing.T) {
			w, h, _ := onHub(t, families+"qwen3-untied", 1, c.sections+"\nfetch: {keep: false}")
			_, err := w.run(t)
			positioned := (*recipes.Error)(nil)
			if !errors.As(err, &positioned) || positioned.Line != 4 || !strings.HasPrefix(positioned.Message, c.at+": ") {
				t.Errorf("%v", err)
			}
			if n := len(h.Requests("*", "*")); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
	w := newWork(t, tiny, "fetch: {keep: false}")
	if _, err := w.run(t); err == nil || !strings.Contains(err.Error(), "fetch.keep: ") {
		t.Errorf("a local checkpoint: %v", err)
	}
}
