package reference

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// logitBound is what transformers and this package may differ by: both compute in float32, sum in
// different orders, and round rotary angles differently. Observed is a tenth of it.
const logitBound = 1e-4

// nllBound is the last printed digit of the recorded likelihoods, and the rounding of the recorder's float32.
const nllBound = 1e-4

// deltaBound is logitBound for models of gated delta rules, which normalise small outputs: transformers in float64, which keeps
// float32 within the rule, differs from itself in float32 by 6e-5, and this package from either by 1.4e-4 (a divergence of
// 2e-11 nats).
const deltaBound = 4e-4

var families = []string{
	"llama", "llama-bias", "llama-linear-rope", "llama3-rope", "qwen2-tied", "qwen2-untied", "qwen3-tied", "qwen3-untied",
	"apertus", "arcee", "bamba", "bitnet", "bloom", "cohere", "cohere2", "dots1", "exaone4", "falcon_h1", "gpt_neox", "helium",
	"internlm3", "llama4_text", "minicpm3", "minimax_m2", "mixtral", "nemotron", "olmo", "olmoe", "phi", "qwen2_moe", "seed_oss", "stablelm", "starcoder2",
}

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
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			d, src := readCheckpoint(t, familyDir(name))
			golden := readFile(t, filepath.Join(familyDir(name), "golden.safetensors"))
			opened, err := arch.Open(d, src)
			if err != nil {
				t.Fatal(err)
			}
			m, err := New(d, opened, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := scoreAll(t, m, [][]int32{golden.tokens(t, "ids_0"), golden.tokens(t, "ids_1")})
			worst, bound := 0.0, logitBound
			if strings.HasPrefix(name, "qwen3_5") || name == "qwen3_next" {
				bound = deltaBound
			}
			for i, name := range []string{"logits_0", "logits_1"} {
				want := golden.floats(name)
				if len(got[i]) != len(want) {
					t.Fatalf("%s: %d values, want %d", name, len(got[i]), len(want))
				}
				for j := range want {
					e := math.Abs(float64(got[i][j]) - float64(want[j]))
					if !(e <= bound) {
						t.Fatalf("%s[%d] is %v, want %v", name, j, got[i][j], want[j])
					}
					worst = max(worst, e)
				}
			}
			t.Logf("largest error of a logit: %.2g", worst)
		})
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
