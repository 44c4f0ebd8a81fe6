package net

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

// digests hold the bits of text, hidden states and gradients, on every machine and in every tier: each of a trained model, and
// all together of families that have every kind of norm, function and score.
var digests = []string{
	"text e4fcb982f6fab8a1",
	"hidden fb17c793948f2a79",
	"gradient 8f42aae26658b2cb",
	"weights 8d3391055bcdde14",
	"gemma2 c7ee9251fb641663",
	"bloom 1220321782444d4b",
	"bitnet 564a6c9944a874d2",
	"apertus cc4954b67b6b12c7",
	"phi3-longrope 0ff0a89fbe33db89",
	"hunyuan_v1_dense 18c8d0867d2a4b94",
	"olmo2 2db2b7ef7bb530dd",
}

// someFamilies says that digests with the name of a family begin there.
const someFamilies = 4

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
			sum(t, openModel(t, filepath.Join(familiesDir, name), 2), 3, 70, sums[i], sums[i], sums[i], sums[i])
		}
	}
	sum(t, openModel(t, tinyDir, 2), 8191, 10, sums...)
	for i, want := range digests {
		word, _, _ := strings.Cut(want, " ")
		if got := fmt.Sprintf("%s %x", word, sums[i].Sum(nil)[:8]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// sum writes text, states, gradients and gradients of weights to hashes.
func sum(t *testing.T, m *Model, first int32, length int, sums ...hash.Hash) {
	windows := sample(t, m, Sampling{Windows: 2, Length: length, First: []int32{first}, Temperature: 1, Seed: 5})
	h, dh, weights := backward(t, load(t, m), windows)
	binary.Write(sums[0], binary.LittleEndian, slices.Concat(windows...))
	binary.Write(sums[1], binary.LittleEndian, h)
	binary.Write(sums[2], binary.LittleEndian, dh)
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		binary.Write(sums[3], binary.LittleEndian, weights[name])
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
