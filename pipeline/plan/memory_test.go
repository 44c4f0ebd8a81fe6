package plan

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/quant"
)

// Sizes of the sources. The large one runs when LLMEXPORT_BIG is set, for a minute or more, in a process of its
// own: LLMEXPORT_BIG=1 go test -run TestMemoryIsBounded -v ./pipeline/plan
const (
	smallSource = 256 << 20
	bigSource   = 16 << 30
)

// writeMemory is the limit that the test gives to Write. The process may use more: what it had before, buffers
// that wait for the collector, and the scales of one matrix.
const (
	writeMemory = 64 << 20
	peakGrowth  = 128 << 20
	peakRSS     = 512 << 20
)

// Memory does not grow with the model: a source that is computed on the fly goes to a destination that keeps
// nothing.
func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 256 MiB")
	}
	layers, wanted, change := 3, int64(smallSource), map[string]any{"hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128, "vocab_size": 8000}
	if os.Getenv("LLMEXPORT_BIG") != "" {
		layers, wanted, change = 38, bigSource, map[string]any{
			"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "vocab_size": 151936, "tie_word_embeddings": false,
		}
	}
	change["num_hidden_layers"], change["max_window_layers"] = layers, layers
	m, src := published(t, "Qwen3-0.6B", change)
	if src.Size() < wanted {
		t.Fatalf("source of %d bytes, want %d", src.Size(), wanted)
	}
	p, err := New(m, src.Tensors(), policy)
	if err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // starts the peak anew, where it may
	before := peak(t)
	start := time.Now()
	var n counter
	sum, err := p.Write(t.Context(), &n, src, WriteOptions{Encoder: quant.RTN{}, Threads: runtime.GOMAXPROCS(0), Memory: writeMemory})
	if err != nil || int64(n) != p.Bytes {
		t.Fatalf("%d of %d bytes: %v", n, p.Bytes, err)
	}
	took, after := time.Since(start), peak(t)
	t.Logf("%d MiB to %d MiB (%.12s) in %.1fs, %.0f MB/s of source with %d threads; peak RSS %d MiB, %d MiB before",
		src.Size()>>20, p.Bytes>>20, sum, took.Seconds(), float64(src.Size())/1e6/took.Seconds(), runtime.GOMAXPROCS(0), after>>20, before>>20)
	if after-before > peakGrowth || wanted == bigSource && after > peakRSS {
		t.Errorf("peak of %d MiB after %d MiB", after>>20, before>>20)
	}
}

// counter is a destination that keeps nothing.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// peak is the largest resident size of the process so far, in bytes.
func peak(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skipf("this system does not tell the peak of memory: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Skip("no VmHWM in /proc/self/status")
	return 0
}
