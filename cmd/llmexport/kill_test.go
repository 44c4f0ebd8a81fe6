package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

const (
	killShards = 3
	shardBytes = 13<<20 + 1000 // four pieces
	killRate   = 8 << 20       // bytes per second of each connection
	// A kill costs a piece of each of two connections to every shard, and what the server has given within one twentieth of
	// a second.
	killCost = killShards * 2 * (4<<20 + killRate/20 + 64<<10)
)

// killRepo is a repository whose weights are of no model: a run ends once it has them.
func killRepo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(families, "qwen3-tied"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	index := map[string]map[string]string{"weight_map": {}}
	random := rand.NewChaCha8([32]byte{})
	for i := range killShards {
		name, tensor := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, killShards), fmt.Sprintf("none.%d", i)
		index["weight_map"][tensor] = name
		head := fmt.Appendf(nil, `{"%s":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, tensor, shardBytes, shardBytes)
		b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
		at := len(b)
		b = append(b, make([]byte, shardBytes)...)
		_, _ = random.Read(b[at:])
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(index)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRunKilled kills runs that fetch shards into the cache, at random instants, LLMEXPORT_KILLS times in all: whatever has
// a name there is what the hub has, and not much travels twice.
func TestRunKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	kills := placetest.Kills(3)
	dir := killRepo(t)
	h := serveHub(t, dir, nil)
	h.Fault(fakehub.Rule{Fault: fakehub.Slow, Path: "*.safetensors", Server: "storage", Rate: killRate})
	cache := os.Getenv("HF_HUB_CACHE")
	recipe := filepath.Join(t.TempDir(), "recipe.yaml")
	if err := os.WriteFile(recipe, []byte("version: 1\nname: tiny\nmodel: {repo: org/model}\nquantize: {bits: 8, block: 32}\nverify: "+
		"{enabled: false}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// check demands of all that has a name in the cache that it is right, and counts the shards.
	check := func() (shards int) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(cache, "models--org--model", "snapshots", "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			got, err := os.ReadFile(name)
			want, werr := os.ReadFile(filepath.Join(dir, filepath.Base(name)))
			if err := errors.Join(err, werr); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s is not what the hub has: %v", name, err)
			}
			if filepath.Ext(name) == ".safetensors" {
				shards++
			}
		}
		return shards
	}
	const whole = time.Second // about what a run takes
	killed, again := 0, int64(0)
	for killed < kills {
		if err := os.RemoveAll(cache); err != nil {
			t.Fatal(err)
		}
		before := weightsSent(h)
		for {
			cmd := exec.Command("llmexport", "--progress", "none", "run", recipe)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			stop := func() bool { return false }
			if killed < kills {
				stop = time.AfterFunc(rand.N(whole), func() { _ = cmd.Process.Kill() }).Stop
			}
			_ = cmd.Wait()
			stop()
			shards := check()
			if code := cmd.ProcessState.ExitCode(); code == exit.Unsupported && shards == killShards {
				break
			} else if code >= 0 {
				t.Fatalf("exit code %d with %d shards: %s", code, shards, out.String())
			}
			killed++
		}
		again += weightsSent(h) - before - killShards*shardBytes
	}
	per := float64(again) / float64(kills)
	t.Logf("kills: %d, corrupt: 0, lost: 0, again per kill: %.3f MiB, limit: %.3f MiB", kills, per/(1<<20), float64(killCost)/(1<<20))
	if per > killCost {
		t.Errorf("%.0f bytes travelled again for each kill, more than %d", per, killCost)
	}
}
