package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// sample calls Sample and requires windows of the right form.
func sample(t testing.TB, d *arch.Decoder, src tensor.Source, s Sampling) [][]int32 {
	t.Helper()
	windows, err := Sample(t.Context(), d, src, s)
	if err != nil {
		t.Fatal(err)
	}
	if len(windows) != s.Windows {
		t.Fatalf("%d windows instead of %d", len(windows), s.Windows)
	}
	for _, w := range windows {
		if len(w) != s.Length || !slices.Equal(w[:len(s.First)], s.First) {
			t.Fatalf("window %v", w)
		}
	}
	return windows
}

// The text of a window depends on its number and the seed, and on nothing else.
func TestSample(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	d, src := openCheckpoint(t, tinyDir)
	s := Sampling{Windows: 5, Length: 20, First: []int32{8191, 37}, Seed: 4, Threads: 1}
	want := sample(t, d, src, s)
	least := LeastSampling(d, s.Length, 7)
	for _, c := range []struct {
		name   string
		change func(*Sampling)
	}{
		{"threads", func(s *Sampling) { s.Threads = 7 }},
		{"windows", func(s *Sampling) { s.Windows = 3 }},
		{"more windows", func(s *Sampling) { s.Windows = 6 }},
		{"length", func(s *Sampling) { s.Length = 11 }},
		{"no memory", func(s *Sampling) { s.Windows, s.Length, s.Memory = 2, 6, 1 }},
		{"some matrices in memory", func(s *Sampling) { s.Length, s.Memory = 10, least+9<<20 }},
		{"a journal", func(s *Sampling) { s.Dir = t.TempDir() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s
			s.Threads = 2
			c.change(&s)
			for i, w := range sample(t, d, src, s)[:min(s.Windows, 5)] {
				if !slices.Equal(w, want[i][:s.Length]) {
					t.Errorf("window %d is %v, want %v", i, w, want[i][:s.Length])
				}
			}
		})
	}
	s.Seed++
	if other := sample(t, d, src, s); slices.Equal(other[0], want[0]) || slices.Equal(want[0], want[1]) {
		t.Error("the same text from other random numbers")
	}
}

// Windows that teams of threads write at the same time are those of one thread, also after a cancelled call.
func TestSampleTeams(t *testing.T) {
	t.Parallel()
	d, src := openCheckpoint(t, familyDir("llama"))
	s := Sampling{Windows: 2*teamWindows + 3, Length: 9, First: []int32{1}, Threads: 1}
	want := sample(t, d, src, s)
	s.Threads, s.Dir = 2*teamThreads+1, t.TempDir()
	m, err := forward.New(d, src, s.Threads)
	check(t, err)
	w := &sampler{Sampling: s, model: m}
	w.Memory = 2 << 30
	if teams, batch, weights := w.share(0); teams != 2 || batch != teamWindows+2 || weights != m.Weights().All {
		t.Errorf("%d teams, %d windows, %d bytes of weights", teams, batch, weights)
	}
	window := forward.CacheBytes(d, s.Length) + m.TokenBytes() + 4*int64(d.Vocab+2*d.Hidden)
	w.Memory = m.Overhead(s.Length) + m.Weights().All + int64(s.Length)*m.TokenBytes() + int64(s.Windows)*window
	if teams, _, _ := w.share(0); teams != 1 {
		t.Error("two teams without room for a second one")
	}
	lost := errors.New("lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	c := s
	c.Progress = func(done, total int64) {
		if ctx.Err() != nil {
			t.Error("progress of a cancelled call")
		}
		if done > total/2 {
			cancel(lost)
		}
	}
	if _, err := Sample(ctx, d, src, c); !errors.Is(err, lost) {
		t.Errorf("cancelled: %v", err)
	}
	p := &tally{t: t}
	s.Progress = p.add
	if diff := cmp.Diff(want, sample(t, d, src, s)); diff != "" {
		t.Errorf("windows (-want +got):\n%s", diff)
	}
	if p.end(); p.total != int64(s.Windows*s.Length) {
		t.Errorf("%d tokens", p.total)
	}
	s.Dir, s.Progress = "", nil
	name := pairOf(d, 0).MLP.Up.Weight.Tensor
	if _, err := Sample(t.Context(), d, &poisoned{src, name, bf16NaN}, s); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("NaN: %v", err)
	}
}

// Memory goes to the matrices if a few more batches make room for all of them, and else to the windows.
func TestSampleMemory(t *testing.T) {
	t.Parallel()
	d, src := openCheckpoint(t, tinyDir)
	m, err := forward.New(d, src, 2)
	check(t, err)
	all := m.Weights().All
	for _, c := range []struct {
		length  int
		memory  int64
		batch   int
		weights string
	}{
		{512, 1, 1, "none"},
		{512, all + 40*forward.CacheBytes(d, 512), 35, "all"},
		{512, 2*all + 400*forward.CacheBytes(d, 512), 140, "all"},
		{16, all * 7 / 10, 70, "none"},
	} {
		w := &sampler{Sampling: Sampling{Windows: 140, Length: c.length, Memory: c.memory, Threads: 1}, model: m}
		teams, batch, weights := w.share(0)
		held := map[bool]string{weights == 0: "none", weights == all: "all", weights > 0 && weights < all: "some"}[true]
		if teams != 1 || batch != c.batch || held != c.weights {
			t.Errorf("%d bytes: %d windows, %s of the weights, want %d, %s", c.memory, batch, held, c.batch, c.weights)
		}
		if used := int64(batch)*forward.CacheBytes(d, c.length) + weights; c.memory > 1 && used > c.memory {
			t.Errorf("%d bytes of %d", used, c.memory)
		}
	}
}

// On a device as many windows advance together as have room next to the weights in 16 bits. Where not even these have room, what
// travels in all batches decides.
func TestSampleRoom(t *testing.T) {
	t.Parallel()
	d, src := openCheckpoint(t, tinyDir)
	m, err := forward.New(d, src, 2)
	check(t, err)
	stored, window := m.Weights().Stored, forward.CacheBytes(d, 512)+m.TokenBytes()+4*int64(d.Vocab+2*d.Hidden)
	if all := m.Weights().All; stored < all*49/100 || stored > all/2 {
		t.Errorf("%d bytes as stored, %d in float32", stored, all)
	}
	for _, c := range []struct {
		room  int64
		batch int
	}{
		{0, 140},
		{stored + 140*window, 140},
		{stored + 139*window, 70},
		{stored + 40*window, 35},
		{stored/4 + 35*window, 28},
		{1, 1},
	} {
		w := &sampler{Sampling: Sampling{Windows: 140, Length: 512, Memory: 1 << 40, Threads: 1}, model: m}
		if _, batch, weights := w.share(c.room); batch != c.batch || weights != m.Weights().All {
			t.Errorf("%d bytes on a device: %d windows together, want %d, and %d bytes of weights in memory", c.room, batch, c.batch, weights)
		}
	}
	// Memory has room for the windows and half of the weights. A device reads them if it has room for all.
	w := &sampler{Sampling: Sampling{Windows: 140, Length: 512, Threads: 1}, model: m}
	w.Memory = m.Overhead(w.Length) + m.TokenBytes()*int64(w.Length) + m.Weights().All/2 + 140*window
	for room, want := range map[int64]int{stored + 140*window: 140, stored + 139*window: 70, stored: 140} {
		if _, batch, _ := w.share(room); batch != want {
			t.Errorf("%d bytes on a device: %d windows together, want %d", room, batch, want)
		}
	}
}

// The likelihood of text that the model draws is that of its own distribution: the mean over tokens of the difference between
// likelihood and entropy vanishes.
func TestSampleDistribution(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	d, src := openCheckpoint(t, tinyDir)
	windows := sample(t, d, src, Sampling{Windows: 16, Length: 64, First: []int32{8191}, Seed: 1, Threads: 2})
	rows := logits(t, d, src, windows)
	var sum, squares, n float64
	for i, w := range windows {
		for pos, token := range w[1:] {
			row := rows[(i*len(w)+pos)*d.Vocab:][:d.Vocab]
			norm, entropy := kernel.LogSumExp(row), 0.0
			for _, x := range row {
				entropy += math.Exp(float64(x)-norm) * (norm - float64(x))
			}
			difference := norm - float64(row[token]) - entropy
			sum, squares, n = sum+difference, squares+difference*difference, n+1
		}
	}
	deviations := math.Abs(sum) / math.Sqrt(squares)
	t.Logf("%.2f standard deviations, mean %.3f", deviations, sum/n)
	if deviations > 3 {
		t.Errorf("off by %v standard deviations", deviations)
	}
}

func TestSampleRefused(t *testing.T) {
	t.Parallel()
	d, src := openCheckpoint(t, familyDir("llama"))
	most := d.MaxPositions
	for _, c := range []struct {
		name, text string
		change     func(*Sampling)
	}{
		{"length", "of 0 tokens", func(s *Sampling) { s.Length = 0 }},
		{"too long", "the longest context", func(s *Sampling) { s.Length = most + 1 }},
		{"windows", "-1 windows", func(s *Sampling) { s.Windows = -1 }},
		{"no first token", "begin with 0", func(s *Sampling) { s.First = nil }},
		{"first token", "is not in a vocabulary", func(s *Sampling) { s.First = []int32{int32(d.Vocab)} }},
		{"negative token", "token -1", func(s *Sampling) { s.First = []int32{1, -1} }},
		{"many first tokens", "begin with 11", func(s *Sampling) { s.First = make([]int32, 11) }},
		{"no directory", "samples.jsonl", func(s *Sampling) { s.Dir = filepath.Join(t.TempDir(), "absent") }},
	} {
		s := Sampling{Windows: 2, Length: 10, First: []int32{1}}
		c.change(&s)
		if _, err := Sample(t.Context(), d, src, s); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s := Sampling{Windows: 2, Length: 10, First: make([]int32, 10)}
	if got := sample(t, d, src, s); len(got) != 2 {
		t.Error("windows that are given are not returned")
	}
	s.Windows, s.First = 0, []int32{1}
	sample(t, d, src, s)
	name := pairOf(d, 0).MLP.Up.Weight.Tensor
	s.Windows = 2
	if _, err := Sample(t.Context(), d, &poisoned{src, name, bf16NaN}, s); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("NaN: %v", err)
	}
}

// Progress begins before the first token, moves within a token, and ends with all tokens.
func TestSampleProgress(t *testing.T) {
	t.Parallel()
	d, src := openCheckpoint(t, familyDir("llama"))
	s := Sampling{Windows: 6, Length: 5, First: []int32{1}, Threads: 1}
	p, steps := &tally{t: t}, []int64{}
	s.Progress = func(done, total int64) {
		p.add(done, total)
		steps = append(steps, done)
	}
	sample(t, d, src, s)
	if p.end(); p.total != 30 {
		t.Errorf("%d tokens", p.total)
	}
	if steps[0] != 0 || len(d.Layers) < 2 || len(steps) < 10 {
		t.Errorf("progress %v", steps)
	}
}

// A cancelled call reports no more progress; the next call continues with its tokens, and with other threads and batches.
func TestSampleContinued(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"llama", "qwen3_next", "falcon_h1", "lfm2_moe", "deepseek_v3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, src := openCheckpoint(t, familyDir(name))
			s := Sampling{Windows: 5, Length: 24, First: []int32{1}, Threads: 2}
			want := sample(t, d, src, s)
			lost := errors.New("lost")
			s.Dir, s.Memory = t.TempDir(), LeastSampling(d, s.Length, 2)+2*forward.CacheBytes(d, s.Length)
			for _, after := range []int64{1, 40, 70} {
				ctx, cancel := context.WithCancelCause(t.Context())
				calls := 0
				c := s
				c.Progress = func(done, _ int64) {
					if done >= after {
						calls++
						cancel(lost)
					}
				}
				if _, err := Sample(ctx, d, src, c); !errors.Is(err, lost) || calls != 1 {
					t.Errorf("cancelled: %v after %d calls", err, calls)
				}
			}
			s.Threads, s.Memory = 1, 0
			if diff := cmp.Diff(want, sample(t, d, src, s)); diff != "" {
				t.Errorf("windows (-want +got):\n%s", diff)
			}
			opens := &lethal{Source: src}
			opens.left.Store(1 << 30)
			if diff := cmp.Diff(want, sample(t, d, opens, s)); diff != "" {
				t.Errorf("windows of the journal (-want +got):\n%s", diff)
			}
			if n := 1<<30 - opens.left.Load(); n > 2 {
				t.Errorf("a finished journal reads %d tensors", n)
			}
		})
	}
}

// A journal that is cut or damaged anywhere, or that belongs to something else, costs work and changes nothing.
func TestSamplesDamaged(t *testing.T) {
	t.Parallel()
	d, src := openCheckpoint(t, familyDir("llama"))
	d.Layers = d.Layers[:1]
	s := Sampling{Windows: 3, Length: 7, First: []int32{1}, Threads: 1, Dir: t.TempDir(), Name: "calibration-1"}
	want := sample(t, d, src, s)
	path := filepath.Join(s.Dir, SamplesFile)
	whole, err := os.ReadFile(path)
	check(t, err)
	if lines := strings.Count(string(whole), "\n"); lines != 6 {
		t.Errorf("%d lines", lines)
	}
	again := func(what string, s Sampling, journal []byte, want [][]int32) {
		t.Helper()
		check(t, os.WriteFile(path, journal, 0o666))
		if diff := cmp.Diff(want, sample(t, d, src, s)); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", what, diff)
		}
		if b, err := os.ReadFile(path); err != nil || s.Name == "calibration-1" && string(b) != string(whole) {
			t.Fatalf("%s: another journal, %v", what, err)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		n := r.IntN(len(whole))
		again(fmt.Sprint(n, " bytes"), s, whole[:n], want)
		b := slices.Clone(whole)
		b[n] ^= 1 << r.IntN(8)
		again(fmt.Sprint("byte ", n), s, b, want)
	}
	line := whole[:strings.IndexByte(string(whole), '\n')+1]
	again("a repeated line", s, slices.Concat(line, line), want)
	other := s
	other.Name = "calibration-2"
	again("another entry", other, whole, want)
	other = s
	other.Seed, other.Dir = 5, ""
	different := sample(t, d, src, other)
	other.Dir, other.Name = s.Dir, "seed"
	again("another seed", other, whole, different)
}

// Processes that are killed while they draw leave tokens that a later call completes to the same text.
func TestSampleKilled(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("qwen3_next"))
	s := Sampling{Windows: 4, Length: 16, First: []int32{1}, Threads: 2, Memory: 1}
	if where, n, dir := killPoint(); where != "" {
		s.Dir = dir
		s.Progress = func(done, _ int64) {
			if done >= int64(n) {
				killSelf()
			}
		}
		_, err := Sample(t.Context(), d, src, s)
		t.Fatalf("alive: %v", err)
	}
	t.Parallel()
	want := sample(t, d, src, s)
	s.Dir = t.TempDir()
	for _, n := range []int{3, 22, 40, 64} {
		wantKilled(t, killedChild("TestSampleKilled", "progress", n, s.Dir))
		b, err := os.ReadFile(filepath.Join(s.Dir, SamplesFile))
		check(t, err)
		// The first token of a window is given, and the last step before the kill may not be written.
		if lines := strings.Count(string(b), "\n"); lines < n-n/s.Length-2 {
			t.Errorf("killed after %d tokens, %d are in the journal", n, lines)
		}
	}
	if diff := cmp.Diff(want, sample(t, d, src, s)); diff != "" {
		t.Errorf("windows (-want +got):\n%s", diff)
	}
}
