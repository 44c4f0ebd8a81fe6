package stage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// removeAll removes what matches a pattern, which must be something.
func removeAll(t testing.TB, pattern ...string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(pattern...))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v: %v, %v", pattern, names, err)
	}
	for _, n := range names {
		if err := os.RemoveAll(n); err != nil {
			t.Fatal(err)
		}
	}
}

// rot flips a bit of the last byte of a file as a disk does: nothing else of it changes.
func rot(t testing.TB, path string) {
	t.Helper()
	if err := flipByte(path, 1); err != nil {
		t.Fatal(err)
	}
}

// age makes files old enough for their digests to be remembered.
func age(t testing.TB, pattern ...string) (names []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(pattern...))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v: %v, %v", pattern, names, err)
	}
	old := time.Now().Add(-time.Hour)
	for _, n := range names {
		if err := os.Chtimes(n, old, old); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// Shards that rot in the cache of the hub are found before something is made of them, and fetched again in the same run.
func TestDamagedBlobs(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	w, h, dir := onHub(t, families+"qwen3-untied", 3, "quantize: {block: auto}\nverify: {enabled: false}")
	w.must(t)
	want := listing(t, w.out())
	blobs := filepath.Join(w.dir, "hub", "models--org--tiny", "blobs", "*")
	// The index is read before digests are taken.
	for _, path := range age(t, blobs) {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), `"weight_map"`) {
			rot(t, path)
		}
	}
	w.must(t)
	for _, c := range []struct {
		remembered bool
		at         float64
	}{{false, 1}, {true, 1}, {true, 0}} { // in a weight, and in the header, with which nothing can be opened
		remembered := c.remembered
		var shards []string
		for _, path := range age(t, blobs) {
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), `"data_offsets"`) {
				shards = append(shards, path)
			}
		}
		if len(shards) != 3 {
			t.Fatalf("shards %v", shards)
		}
		if remembered {
			w.must(t)
		}
		h.ResetStats()
		if err := flipByte(shards[1], c.at); err != nil {
			t.Fatal(err)
		}
		if remembered && c.at == 1 {
			w.must(t) // everything else is there, and nothing is read that nobody needs
			if list := fetched(h, dir); len(list) > 0 {
				t.Errorf("fetched %v for nothing", list)
			}
		}
		removeAll(t, w.cache(), "weights-*")
		removeAll(t, w.dir, "dist")
		w.must(t)
		if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
			t.Errorf("remembered %v: package (-want +got):\n%s", remembered, diff)
		}
		if list := fetched(h, dir); len(list) != 1 {
			t.Errorf("remembered %v: fetched %v", remembered, list)
		}
	}
}

// Of a directory of the user's nobody has another copy: the run ends before something is made of it.
func TestDamagedDirectory(t *testing.T) {
	t.Parallel()
	checkpoint := inShards(t, families+"qwen3-untied", 2)
	shards := age(t, checkpoint, "*.safetensors")
	w := newWork(t, checkpoint, "quantize: {block: auto}\nverify: {enabled: false}")
	w.must(t)
	rot(t, shards[1])
	w.must(t)
	removeAll(t, w.cache(), "weights-*")
	_, err := w.run(t)
	if !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(shards[1])) ||
		!strings.Contains(err.Error(), "touch it") {
		t.Errorf("a flipped bit: %v", err)
	}
	now := time.Now()
	if err := os.Chtimes(shards[1], now, now); err != nil {
		t.Fatal(err)
	}
	w.must(t, "publish[0].dir=other") // it was meant
}

// Shards that lie where a streamed source looks for them are compared with their digests, in the cache of the hub and where a
// killed run has left them.
func TestStreamedDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	w, _, dir := onHub(t, families+"qwen3-untied", 4, "quantize: {block: auto}\nverify: {enabled: false}")
	w.must(t, "publish[0].dir=kept")
	want := listing(t, filepath.Join(w.dir, "kept"))
	repo := filepath.Join(w.dir, "hub", "models--org--tiny")
	shard := func(n string) string {
		links, err := filepath.Glob(filepath.Join(repo, "snapshots", "*", "model-0000"+n+"-of-00004.safetensors"))
		if err != nil || len(links) != 1 {
			t.Fatalf("%v, %v", links, err)
		}
		blob, err := filepath.EvalSymlinks(links[0])
		if err != nil {
			t.Fatal(err)
		}
		return blob
	}
	for _, n := range []string{"2", "3"} { // so that the snapshot is not whole, and its shards are looked at one by one
		if err := os.Remove(shard(n)); err != nil {
			t.Fatal(err)
		}
	}
	rot(t, shard("1"))
	removeAll(t, w.cache(), "weights-*")
	streamed := []string{"fetch.keep=false", "publish[0].dir=streamed"}
	w.must(t, streamed...)
	if diff := cmp.Diff(want, listing(t, filepath.Join(w.dir, "streamed"))); diff != "" {
		t.Errorf("a shard in the cache (-kept +streamed):\n%s", diff)
	}
	weights, err := filepath.Glob(filepath.Join(w.cache(), "weights-*"))
	if err != nil || len(weights) != 1 {
		t.Fatalf("%v, %v", weights, err)
	}
	removeAll(t, w.cache(), "weights-*")
	removeAll(t, w.cache(), "package-*")
	removeAll(t, w.dir, "streamed")
	spooled := filepath.Join(weights[0]+".partial", "source", "model-00002-of-00004.safetensors")
	b, err := os.ReadFile(filepath.Join(dir, filepath.Base(spooled)))
	if err == nil {
		b[len(b)-1] ^= 1
		err = errors.Join(os.MkdirAll(filepath.Dir(spooled), 0o777), os.WriteFile(spooled, b, 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.must(t, streamed...)
	if diff := cmp.Diff(want, listing(t, filepath.Join(w.dir, "streamed"))); diff != "" {
		t.Errorf("a shard that a killed run left (-kept +streamed):\n%s", diff)
	}
	none(t, w.cache())
}

// What a run of another recipe wrote is not taken over, though its journal and its bytes agree.
func TestOtherPartial(t *testing.T) {
	t.Parallel()
	const sections = "quantize: {block: 32}\nverify: {enabled: false}"
	w, o := newWork(t, families+"llama", sections), newWork(t, families+"llama", strings.Replace(sections, "block", "method: search, block", 1))
	w.must(t)
	o.must(t)
	want := listing(t, w.out())
	mine, other := partial(t, w), partial(t, o)
	for _, name := range []string{"journal", "llm.mnn.weight"} {
		if err := os.Rename(filepath.Join(other, name), filepath.Join(mine, name)); err != nil {
			t.Fatal(err)
		}
	}
	removeAll(t, w.dir, "dist")
	w.must(t)
	if diff := cmp.Diff(want, listing(t, w.out())); diff != "" {
		t.Errorf("package (-want +got):\n%s", diff)
	}
}
