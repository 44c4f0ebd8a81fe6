package calibrate

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// tierVariable is what kernel.Tier documents.
const tierVariable = "LLMEXPORT_KERNEL"

// codesDigests hold the bits of gptq, sequential, on every machine and in every tier: of the attention of a trained model, and
// of a small one with its table, before and after tuning.
var codesDigests = []string{
	"tiny-qwen3 5ec89aa24a0d2fc2",
	"llama-bias a692fee7c5c6b276",
	"tuned b586a2d61f8171f0",
}

func TestDigest(t *testing.T) {
	if tier := os.Getenv(tierVariable); tier != "" {
		if got, err := kernel.Tier(); err != nil || got != tier {
			t.Skipf("%s: %v", tier, err)
		}
	}
	gptq := quant.NewGPTQ()
	gptq.Candidates = 4
	d, src := openCheckpoint(t, tinyDir)
	trained := newJob(t, d, src, slicesOf(text(t, d), 32)[:4], gptq)
	d.Layers = d.Layers[:1]
	trained.Specs = specs(t, d, threeBits, quant.Half)
	for _, w := range []arch.Weight{pairOf(d, 0).MLP.Gate.Weight, pairOf(d, 0).MLP.Up.Weight, pairOf(d, 0).MLP.Down.Weight} {
		trained.Specs[w.Tensor] = quant.Half // for the speed of the generic tier
	}
	one := trained.run(t, t.TempDir())

	d, src = openCheckpoint(t, familyDir("llama-bias"))
	small := newJob(t, d, src, randomText(d, 4, 32), gptq, quickly(2))
	small.Dir = t.TempDir()
	two := small.run(t, small.Dir)
	three, err := Tune(t.Context(), small.Options, small.Scheme, two)
	check(t, err)
	for i, f := range []*Finished{one, two, three} {
		word, _, _ := strings.Cut(codesDigests[i], " ")
		if got := word + " " + f.Digest()[:16]; got != codesDigests[i] {
			t.Errorf("%q, want %q", got, codesDigests[i])
		}
	}
}

// slicesOf cuts windows into shorter ones.
func slicesOf(windows [][]int32, length int) (list [][]int32) {
	for _, w := range windows {
		for ; len(w) >= length; w = w[length:] {
			list = append(list, w[:length])
		}
	}
	return list
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

// Units of work are smaller on more threads, and matrices of an input are encoded together: the files stay the same.
func TestThreads(t *testing.T) {
	gptq := quant.NewGPTQ()
	gptq.Candidates = 4
	d, src := openCheckpoint(t, familyDir("llama-bias"))
	d.Layers = d.Layers[:1]
	j := newJob(t, d, src, randomText(d, 4, 32), gptq)
	j.Specs[pairOf(d, 0).Attention.K.Weight.Tensor] = quant.Half // between two that are encoded alike
	var want map[string]string
	for _, threads := range []int{1, 2, 16} {
		dir := t.TempDir()
		j.on(threads, plenty).run(t, dir)
		got := content(t, dir)
		if want == nil {
			want = got
		}
		same(t, fmt.Sprintf("%d threads", threads), want, got)
	}
}
