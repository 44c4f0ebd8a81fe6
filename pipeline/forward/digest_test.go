package forward

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// digests hold the bits of hidden states and gradients, on every machine and in every tier: each of a trained model, and
// all together of families that have every kind of norm, function, score and recurrence, of parallel branches and of experts.
var digests = []string{
	"hidden 9c973b5faf3a374f",
	"gradient 0ea8506352e9c56a",
	"weights ae364f24d90dc685",
	"gemma2 a7312e660c5b90f1",
	"bloom c180e95766d9505b",
	"bitnet a222e8a0e2ebed94",
	"apertus b1d6b205ab3e2893",
	"phi3-longrope 1af4d9b04b973f93",
	"hunyuan_v1_dense 97c4e240bfde2cb4",
	"olmo2 ae379d6c1599091e",
	"cohere 6bd0a3612c3c6a43",
	"deepseek_v3 bf50ec95111a83de",
	"phimoe e282802c4c5d7ca6",
	"gpt_oss c75979c982bba244",
	"llama4_text 3a12b88417ea6350",
	"gemma4_text-moe 02b0710537ac4619",
	"qwen3_5_text 5000ff69c94a1950",
	"falcon_h1 d7f02bd6d52a5526",
	"lfm2 28be2b4845409917",
}

// someFamilies says that digests with the name of a family begin there.
const someFamilies = 3

// tierVariable is what kernel.Tier documents.
const tierVariable = "LLMEXPORT_KERNEL"

func TestDigest(t *testing.T) {
	if tier := os.Getenv(tierVariable); tier != "" {
		if got, err := kernel.Tier(); err != nil || got != tier {
			t.Skipf("%s: %v", tier, err)
		}
	}
	sums := make([]hash.Hash, len(digests))
	for i, d := range digests {
		sums[i] = sha256.New()
		if i >= someFamilies {
			name, _, _ := strings.Cut(d, " ")
			addSums(t, openModel(t, filepath.Join(familiesDir, name), 2), 70, sums[i], sums[i], sums[i])
		}
	}
	addSums(t, openModel(t, tinyDir, 2), 10, sums...)
	for i, want := range digests {
		word, _, _ := strings.Cut(want, " ")
		if got := fmt.Sprintf("%s %x", word, sums[i].Sum(nil)[:8]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// addSums writes states, gradients and gradients of weights to hashes.
func addSums(t *testing.T, m *Model, length int, sums ...hash.Hash) {
	windows := randomTokens(m.decoder.Vocab, 2, length)
	h, dh, weights := backward(t, load(t, m), windows)
	binary.Write(sums[0], binary.LittleEndian, h)
	binary.Write(sums[1], binary.LittleEndian, dh)
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		binary.Write(sums[2], binary.LittleEndian, weights[name])
	}
}

// The lower tiers, in processes of their own.
func TestDigestTiers(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	if os.Getenv(tierVariable) != "" {
		t.Skip("in a process of this test")
	}
	for _, tier := range []string{"generic", "avx2", "avx512", "neon"} {
		t.Run(tier, func(t *testing.T) {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDigest$", "-test.v")
			c.Env = append(os.Environ(), tierVariable+"="+tier)
			out, err := c.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			if strings.Contains(string(out), "--- SKIP") {
				t.Skip("this machine has no such tier")
			}
		})
	}
}
