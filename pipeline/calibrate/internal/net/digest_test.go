package net

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// digests hold the bits of text, hidden states and gradients, on every machine and in every tier.
var digests = []string{
	"text e4fcb982f6fab8a1",
	"hidden fb17c793948f2a79",
	"gradient 8f42aae26658b2cb",
	"weights 8d3391055bcdde14",
}

// tierVariable is what kernel.Tier documents.
const tierVariable = "LLMEXPORT_KERNEL"

func TestDigest(t *testing.T) {
	if tier := os.Getenv(tierVariable); tier != "" {
		if got, err := kernel.Tier(); err != nil || got != tier {
			t.Skipf("%s: %v", tier, err)
		}
	}
	m := openModel(t, tinyDir, 2)
	windows := sample(t, m, Sampling{Windows: 2, Length: 10, First: []int32{8191}, Temperature: 1, Seed: 5})
	h, dh, weights := backward(t, load(t, m), windows)
	sums := make([]hash.Hash, 4)
	for i := range sums {
		sums[i] = sha256.New()
	}
	binary.Write(sums[0], binary.LittleEndian, slices.Concat(windows...))
	binary.Write(sums[1], binary.LittleEndian, h)
	binary.Write(sums[2], binary.LittleEndian, dh)
	var names []string
	for name := range weights {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		binary.Write(sums[3], binary.LittleEndian, weights[name])
	}
	for i, want := range digests {
		word, _, _ := strings.Cut(want, " ")
		if got := fmt.Sprintf("%s %x", word, sums[i].Sum(nil)[:8]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The lower tiers, in processes of their own.
func TestDigestTiers(t *testing.T) {
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
