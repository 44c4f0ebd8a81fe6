package stage_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/recipes"
)

// counting is a store that counts what is built in it.
type counting struct {
	*pipeline.Directory

	mu    sync.Mutex
	built map[string]int // by stage
}

func (c *counting) Do(ctx context.Context, l *pipeline.Limits, name, key string, build pipeline.Build, keep ...string) (pipeline.Artifact, error) {
	return c.Directory.Do(ctx, l, name, key, func(p *pipeline.Partial) (digest.Digest, error) {
		c.mu.Lock()
		c.built[name]++
		c.mu.Unlock()
		return build(p)
	}, keep...)
}

// TestVariantsShare: variants that are made at the same time build once what they share, and give the bytes that they give
// one after the other.
func TestVariantsShare(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, families+"qwen3-tied", watch+unverified+`
quantize: {method: rtn, budget: {bpw: 7}}
variants:
  - {name: lean, quantize: {budget: {bpw: 6}}}
  - {name: rounded, quantize: {method: gptq, bits: 4, block: 32, budget: null}}`)
	r, err := recipes.LoadFile(w.recipe(), stage.Sections(), fmt.Sprintf("verify.tokenizer.strings=%d", stagetest.Strings))
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.Expand()
	if err != nil {
		t.Fatal(err)
	}
	directory, err := pipeline.OpenStore(w.cache())
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	store := &counting{Directory: directory, built: map[string]int{}}
	digests := make([]digest.Digest, len(all))
	g, ctx := errgroup.WithContext(t.Context())
	for i, r := range all {
		run, err := stage.New(r, pipeline.Limits{Memory: 1 << 30, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		run.Store = store
		defer run.Close()
		g.Go(func() error {
			_, err := run.Execute(ctx, "")
			digests[i] = run.Verdict.Digest
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"rewrite": 1, "calibration": 1, "sensitivities": 1, "allocation": 2, "codes": 1, "weights": 3, "package": 3}
	if d := cmp.Diff(want, store.built); d != "" {
		t.Errorf("built (-want +got):\n%s", d)
	}
	other := t.TempDir()
	places := `publish=[{dir: "` + filepath.ToSlash(other) + `/{name}"}]`
	again, err := stagetest.Run(t.Context(), w.recipe(), filepath.Join(other, "cache"), 2, places)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range again {
		if a, b := listing(t, filepath.Join(w.dir, "dist", x.Recipe.Name)), listing(t, filepath.Join(other, x.Recipe.Name)); a != b {
			t.Errorf("%s: other bytes at the same time than one after the other:\n%s\n%s", x.Recipe.Name, a, b)
		}
		if x.Verdict.Digest != digests[i] || digests[i] == "" {
			t.Errorf("%s: %q and %q", x.Recipe.Name, digests[i], x.Verdict.Digest)
		}
	}
}
