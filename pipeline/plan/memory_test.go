package plan

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Sizes of the sources. A large one runs when LLMEXPORT_BIG gives its number of layers, in a process of its own:
// LLMEXPORT_BIG=38 go test -run TestMemoryIsBounded -v ./pipeline/plan
// With LLMEXPORT_BIG_DIR the weights are written to a file there and made durable.
const (
	smallSource = 256 << 20
	bigSource   = 16 << 30
	bigLayers   = 38
)

// writeMemory is the limit that the test gives to Write. The process may use more: what it had before, buffers
// that wait for the collector, and the scales of one matrix.
const (
	writeMemory = 64 << 20
	peakGrowth  = 128 << 20
	peakRSS     = 512 << 20
)

// Memory does not grow with the model: a source that is computed on the fly goes to a destination that keeps nothing,
// or to a file. What is left of the time without the source's and the disk's is the exporter's own.
func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 256 MiB")
	}
	layers, wanted, change := 3, int64(smallSource), map[string]any{"hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128, "vocab_size": 8000}
	big := os.Getenv("LLMEXPORT_BIG")
	if big != "" {
		var err error
		if layers, err = strconv.Atoi(big); err != nil {
			t.Fatal(err)
		}
		wanted = bigSource * int64(min(layers, bigLayers)) / bigLayers
		change = map[string]any{
			"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "vocab_size": 151936, "tie_word_embeddings": false,
		}
	}
	change["num_hidden_layers"], change["max_window_layers"] = layers, layers
	m, src := published(t, "Qwen3-0.6B", change)
	if src.Size() < wanted {
		t.Fatalf("source of %d bytes, want %d", src.Size(), wanted)
	}
	pl, err := New(m, src.Tensors(), policy)
	if err != nil {
		t.Fatal(err)
	}
	p := pl.Parts[0]
	dst := &destination{}
	if dir := os.Getenv("LLMEXPORT_BIG_DIR"); dir != "" {
		if dst.file, err = os.CreateTemp(dir, "weights"); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(dst.file.Name())
		defer dst.file.Close()
	}
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // resets the peak where permitted
	before, threads := peak(t), runtime.GOMAXPROCS(0)
	timed := &timedSource{Source: src}
	start := time.Now()
	sum, err := p.Write(t.Context(), dst, timed, WriteOptions{Quantizer: quant.RTN{}, Threads: threads, Memory: writeMemory})
	if err != nil || dst.n != p.Bytes {
		t.Fatalf("%d of %d bytes: %v", dst.n, p.Bytes, err)
	}
	synced := time.Now()
	if dst.file != nil {
		if err := dst.file.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	took, fsync, after := time.Since(start), time.Since(synced), peak(t)
	generated := time.Duration(timed.nanoseconds.Load() / int64(threads)) // on each of the threads
	net := took - fsync - generated
	t.Logf("%d MiB to %d MiB (%.12s) in %.2fs with %d threads; peak RSS %d MiB, %d MiB before",
		src.Size()>>20, p.Bytes>>20, sum, took.Seconds(), threads, after>>20, before>>20)
	t.Logf("generator %.2fs, write %.2fs on a thread of its own, fsync %.2fs; without generator and fsync %.2fs: %.0f MB/s of source",
		generated.Seconds(), dst.took.Seconds(), fsync.Seconds(), net.Seconds(), float64(src.Size())/1e6/net.Seconds())
	if after-before > peakGrowth || big != "" && after > peakRSS {
		t.Errorf("peak of %d MiB after %d MiB", after>>20, before>>20)
	}
}

// destination counts bytes, and the time that a file takes for them.
type destination struct {
	n    int64
	file *os.File
	took time.Duration
}

func (d *destination) Write(b []byte) (n int, err error) {
	n = len(b)
	if d.file != nil {
		start := time.Now()
		n, err = d.file.Write(b)
		d.took += time.Since(start)
	}
	d.n += int64(n)
	return n, err
}

// timedSource counts the time that reading takes, of all threads together.
type timedSource struct {
	tensor.Source
	nanoseconds atomic.Int64
}

func (s *timedSource) Open(name string) (*io.SectionReader, error) {
	r, err := s.Source.Open(name)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(&timedReader{r, s}, 0, r.Size()), nil
}

type timedReader struct {
	io.ReaderAt
	source *timedSource
}

func (r *timedReader) ReadAt(b []byte, off int64) (int, error) {
	start := time.Now()
	defer func() { r.source.nanoseconds.Add(int64(time.Since(start))) }()
	return r.ReaderAt.ReadAt(b, off)
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
