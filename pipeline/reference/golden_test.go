package reference

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// klBound is how far, in nats, the probabilities of transformers and of this package may be apart: both compute in
// float32, sum in different orders, and round rotary angles differently.
const klBound = 1e-11

// deltaBound is klBound for models with the gated delta rule, whose states amplify roundings: transformers in float32 is
// 2e-11 from transformers in float64 on the 96 tokens of qwen3_5_text, this package 1e-11.
const deltaBound = 1e-10

// logitBound is klBound for a single logit.
const logitBound = 1e-4

// nllBound is the last printed digit of the recorded likelihoods, and the rounding of the recorder's float32.
const nllBound = 1e-4

func familyDir(name string) string {
	return filepath.Join("..", "..", "pipeline", "arch", "testdata", name)
}

var tinyDir = filepath.Join("..", "..", "testdata", "tiny-qwen3")

// scoreAll collects the logits of each window and checks the order of tiles.
func scoreAll(t testing.TB, m *Model, windows [][]int32) [][]float32 {
	t.Helper()
	all := make([][]float32, len(windows))
	window, pos := 0, 0
	err := m.Score(t.Context(), windows, func(tile Tile) error {
		for window < len(windows) && pos == len(windows[window]) {
			window, pos = window+1, 0
		}
		if tile.Window != window || tile.Pos0 != pos || tile.Rows < 1 || len(tile.Logits) != tile.Rows*m.decoder.Vocab {
			t.Fatalf("tile of %d rows and %d logits at %d, %d; expected at %d, %d", tile.Rows, len(tile.Logits), tile.Window, tile.Pos0, window, pos)
		}
		all[window] = append(all[window], tile.Logits...)
		pos += tile.Rows
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range windows {
		if len(all[i]) != len(w)*m.decoder.Vocab {
			t.Fatalf("window %d: %d logits for %d tokens", i, len(all[i]), len(w))
		}
	}
	return all
}

// Goldens are logits of transformers from the same weights.
func TestGoldens(t *testing.T) {
	goldens, err := filepath.Glob(familyDir("*/golden.safetensors"))
	if err != nil || len(goldens) < 50 {
		t.Fatalf("%d checkpoints: %v", len(goldens), err)
	}
	for _, path := range goldens {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) { testGolden(t, dir, path) })
	}
}

func testGolden(t *testing.T, dir, path string) {
	d, src := readCheckpoint(t, dir)
	golden := readFile(t, path)
	m, err := New(d, src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	bound := klBound
	for _, layer := range d.Layers {
		if _, ok := layer[0].Block.(*arch.DeltaNet); ok {
			bound = deltaBound
		}
	}
	got := scoreAll(t, m, [][]int32{golden.tokens(t, "ids_0"), golden.tokens(t, "ids_1")})
	for i, name := range []string{"logits_0", "logits_1"} {
		want := golden.floats(name)
		if len(got[i]) != len(want) {
			t.Fatalf("%s: %d values, want %d", name, len(got[i]), len(want))
		}
		var mean, worst float64
		for at := 0; at < len(want); at += d.Vocab {
			p, q := want[at:at+d.Vocab], got[i][at:at+d.Vocab]
			mean += kernel.KL(p, q, kernel.LogSumExp(p), kernel.LogSumExp(q)) * float64(d.Vocab) / float64(len(want))
			for j := range p {
				worst = max(worst, math.Abs(float64(p[j])-float64(q[j])))
			}
		}
		if !(mean <= bound) {
			t.Errorf("%s: a divergence of %.2g nats", name, mean)
		}
		t.Logf("%s: %.2g nats, largest error of a logit %.2g", name, mean, worst)
	}
}

// likelihoods are the negative log-likelihoods, in nats, of tokens 1 and on.
func likelihoods(t testing.TB, m *Model, ids []int32) []float64 {
	t.Helper()
	var nats []float64
	err := m.Score(t.Context(), [][]int32{ids}, func(tile Tile) error {
		for r := range tile.Rows {
			if next := tile.Pos0 + r + 1; next < len(ids) {
				row := tile.Logits[r*m.decoder.Vocab : (r+1)*m.decoder.Vocab]
				nats = append(nats, kernel.LogSumExp(row)-float64(row[ids[next]]))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return nats
}

// recorded is a window of text with its likelihoods in an independent implementation.
type recorded struct {
	Nats  float64   `json:"nats"`
	First []float64 `json:"first"`
	IDs   []int32   `json:"ids"`
}

func readRecorded(t testing.TB) (r recorded) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "calibration-512.json"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil || len(r.IDs) != 512 {
		t.Fatalf("%d tokens: %v", len(r.IDs), err)
	}
	return r
}

// A trained model finds English text about as likely here as elsewhere.
func TestLikelihood(t *testing.T) {
	d, src := readCheckpoint(t, tinyDir)
	m, err := New(d, src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := readRecorded(t)
	nats := likelihoods(t, m, want.IDs)
	if len(nats) != len(want.IDs)-1 {
		t.Fatalf("%d likelihoods", len(nats))
	}
	var mean float64
	for _, x := range nats {
		mean += x / float64(len(nats))
	}
	t.Logf("mean %.6f, first %.5f", mean, nats[:3])
	if math.Abs(mean-want.Nats) > nllBound {
		t.Errorf("mean %v, want %v", mean, want.Nats)
	}
	for i, x := range want.First {
		if math.Abs(nats[i]-x) > nllBound {
			t.Errorf("token %d: %v, want %v", i+1, nats[i], x)
		}
	}
}

func BenchmarkScore(b *testing.B) {
	d, src := readCheckpoint(b, tinyDir)
	ids := readRecorded(b).IDs
	for _, c := range []struct {
		name    string
		threads int
	}{{"threads=1", 1}, {"threads=all", 0}} {
		b.Run(c.name, func(b *testing.B) {
			m, err := New(d, src, Options{Threads: c.threads})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := m.Score(b.Context(), [][]int32{ids}, func(Tile) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(ids)*b.N)/b.Elapsed().Seconds(), "tok/s")
		})
	}
}
