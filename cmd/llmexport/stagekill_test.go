package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// killedStages are all stages of a recipe that tunes for a budget.
var killedStages = []string{"fetch", "rewrite", "calibrate", "allocate", "quantize", "verify", "publish"}

// stageRun is a process of `llmexport run` whose progress is followed.
type stageRun struct {
	began map[string]time.Time // stages that were reached
	ended time.Time
	code  int // -1 if it was killed
}

// runStages runs a recipe, and kills it some time after a stage has begun; stage may be empty.
func runStages(t *testing.T, dir, stage string, after time.Duration) stageRun {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "llmexport", "--progress", "json", "--log-level", "error", "run", "recipe.yaml", "--cache", "cache")
	cmd.Dir, cmd.Stdout = dir, io.Discard
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := stageRun{began: map[string]time.Time{}}
	var other []string
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var s pipeline.State
		if json.Unmarshal(lines.Bytes(), &s) != nil || s.Stage == "" {
			other = append(other, lines.Text())
			continue
		}
		if _, ok := r.began[s.Stage]; ok {
			continue
		}
		r.began[s.Stage] = time.Now()
		if s.Stage == stage {
			defer time.AfterFunc(after, func() { _ = cmd.Process.Kill() }).Stop()
		}
	}
	_ = cmd.Wait()
	r.ended = time.Now()
	if r.code = cmd.ProcessState.ExitCode(); r.code > 0 {
		t.Fatalf("exit code %d: %s", r.code, strings.Join(other, "\n"))
	}
	return r
}

// Runs that are killed in any stage, LLMEXPORT_KILLS times in each at random moments, again and again, end with the same package.
func TestStagesKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	kills := placetest.Kills(1)
	dir := t.TempDir()
	model, err := filepath.Abs(tiny)
	if err != nil {
		t.Fatal(err)
	}
	recipe := fmt.Sprintf("version: 1\nname: killed\nmodel: {path: %q}\n"+
		"quantize: {method: [gptq, {distill: {steps: 4, tokens: 256}}], budget: {bpw: 4}}\n"+
		"calibrate: {tokens: 1024, window: 64, probe: 128}\n"+
		"verify: {kl: {max: 1}, perplexity: {windows: 12, window: 64, decode: 4, max_ratio: 10}}\npublish: [{dir: dist}]\n", model)
	if err := os.WriteFile(filepath.Join(dir, "recipe.yaml"), []byte(recipe), 0o644); err != nil {
		t.Fatal(err)
	}
	digest := func() string {
		t.Helper()
		m, err := manifest.Open(filepath.Join(dir, "dist"))
		if err != nil {
			t.Fatal(err)
		}
		return string(m.Digest)
	}
	whole := runStages(t, dir, "", 0)
	want := digest()
	last := map[string]time.Duration{}
	for i, s := range killedStages {
		end := whole.ended
		if i+1 < len(killedStages) {
			end = whole.began[killedStages[i+1]]
		}
		if last[s] = end.Sub(whole.began[s]); whole.began[s].IsZero() || last[s] < 0 {
			t.Fatalf("stage %s was not seen in its place: %v", s, whole.began)
		}
	}
	killed, alive, runs := map[string]int{}, 0, 0
	for {
		if err := os.RemoveAll(filepath.Join(dir, "cache")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "dist")); err != nil {
			t.Fatal(err)
		}
		for _, s := range killedStages {
			// Some kills in a row in each stage, so that work that was taken up again is interrupted too.
			for range min(kills-killed[s], 4) {
				if r := runStages(t, dir, s, rand.N(last[s]+1)); r.code < 0 {
					killed[s]++
				} else {
					alive++
					break
				}
			}
		}
		if runStages(t, dir, "", 0); digest() != want {
			t.Fatalf("another package after %v kills", killed)
		}
		runs++
		t.Logf("%d runs, kills: %v", runs, killed)
		if fewest := slices.MinFunc(killedStages, func(a, b string) int { return killed[a] - killed[b] }); killed[fewest] >= kills || runs == 3*kills {
			break
		}
	}
	t.Logf("kills: %v, too late: %d, runs: %d, different packages: 0", killed, alive, runs)
	if killed["quantize"] == 0 {
		t.Error("nothing was killed in the longest stage")
	}
}
