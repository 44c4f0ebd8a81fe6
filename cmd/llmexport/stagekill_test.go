package main

import (
	"bufio"
	"encoding/json"
	"errors"
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

// leftBy are what a stage leaves in the cache, or next to it.
var leftBy = map[string][]string{
	"rewrite": {"cache/rewrite-*"}, "calibrate": {"cache/calibration-*"}, "allocate": {"cache/sensitivities-*", "cache/parity-*", "cache/allocation-*"},
	"quantize": {"cache/codes-*", "cache/weights-*"}, "verify": {"cache/package-*"}, "publish": {"cache/receipts.json", "dist"},
}

// forget removes what a stage and those after it have made.
func forget(t *testing.T, dir, stage string) {
	t.Helper()
	for _, s := range killedStages[slices.Index(killedStages, stage):] {
		for _, pattern := range leftBy[s] {
			names, err := filepath.Glob(filepath.Join(dir, pattern))
			for _, name := range names {
				err = errors.Join(err, os.RemoveAll(name))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// stageRun is a process of `llmexport run` whose progress is followed.
type stageRun struct {
	began map[string]time.Time // stages that were reached
	last  string               // of them
	ended time.Time
	cpu   time.Duration
	code  int // -1 if it was killed
}

// took is how long a stage was seen.
func (r *stageRun) took(stage string) time.Duration {
	end := r.ended
	for _, s := range killedStages[slices.Index(killedStages, stage)+1:] {
		if at, ok := r.began[s]; ok {
			end = at
			break
		}
	}
	return end.Sub(r.began[stage])
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
		r.began[s.Stage], r.last = time.Now(), s.Stage
		if s.Stage == stage {
			defer time.AfterFunc(after, func() { _ = cmd.Process.Kill() }).Stop()
		}
	}
	_ = cmd.Wait()
	r.ended, r.cpu = time.Now(), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	if r.code = cmd.ProcessState.ExitCode(); r.code > 0 {
		t.Fatalf("exit code %d: %s", r.code, strings.Join(other, "\n"))
	}
	return r
}

// killsInARow is how often a stage is killed before it may end, so that work that was taken up again is interrupted too.
const killsInARow = 6

// mostLost is how much computation a kill may cost.
const mostLost = time.Minute

// Runs that are killed in any stage, LLMEXPORT_KILLS times in each at random moments, again and again, end with the same package, and
// each kill costs at most a minute of work. A model with random weights will do for a few kills, at a tenth of the time.
func TestStagesKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	kills := placetest.Kills(1)
	dir, from := t.TempDir(), filepath.Join(families, "qwen3-tied")
	if kills > 1 {
		from = tiny
	}
	model, err := filepath.Abs(from)
	if err != nil {
		t.Fatal(err)
	}
	recipe := fmt.Sprintf("version: 1\nname: killed\nmodel: {path: %q}\n"+
		"quantize: {method: [gptq, {distill: {steps: 4, tokens: 256}}], budget: {bpw: 4}}\n"+
		"calibrate: {tokens: 1024, window: 64, probe: 128}\n"+
		"verify: {kl: {max: 1}, perplexity: {windows: 12, window: 64, decode: 4, max_ratio: 10, max_source: 10000}}\npublish: [{dir: dist}]\n", model)
	if err := os.WriteFile(filepath.Join(dir, "recipe.yaml"), []byte(recipe), 0o644); err != nil {
		t.Fatal(err)
	}
	want := ""
	whole := func(t *testing.T) stageRun {
		t.Helper()
		r := runStages(t, dir, "", 0)
		m, err := manifest.Open(filepath.Join(dir, "dist"))
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = string(m.Digest)
		}
		if string(m.Digest) != want {
			t.Fatal("another package")
		}
		return r
	}
	first := whole(t)
	for _, s := range killedStages {
		t.Run(s, func(t *testing.T) {
			longest := first.took(s)
			if first.began[s].IsZero() || longest <= 0 {
				t.Fatalf("the stage was not seen in its place: %v", first.began)
			}
			var killed, late int
			var lost time.Duration
			for batch := 0; killed < kills; batch++ {
				if batch == 10+10*kills {
					t.Fatalf("it ends before it is killed: %d kills, %d too late", killed, late)
				}
				forget(t, dir, s)
				for range min(kills-killed, killsInARow) {
					r := runStages(t, dir, s, rand.N(longest+1))
					if r.code >= 0 || r.last != s {
						if !r.began[s].IsZero() {
							longest = max(r.took(s), longest*3/4) // the machine has become faster
						}
						late++
						break
					}
					killed++
					lost = max(lost, r.cpu) // more it cannot be
				}
				whole(t)
			}
			t.Logf("kills: %d, too late: %d, different packages: 0, CPU time lost by a kill: at most %v", killed, late, lost.Round(time.Millisecond))
			if lost > mostLost {
				t.Errorf("a kill costs %v, want at most %v", lost, mostLost)
			}
		})
	}
}
