package calibrate

import (
	"cmp"
	"context"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// effortFactor is what the predicted work of a stage may be off by, in the time that a typical machine takes for it.
const effortFactor = 1.3

// predicted compares the work that f counts with a prediction.
func predicted(t *testing.T, what string, want effort.Work, f func(ctx context.Context) error) {
	t.Helper()
	var counted effort.Tally
	check(t, f(effort.WithTally(t.Context(), &counted)))
	got := counted.Done()
	got[effort.Disk], want[effort.Disk] = 0, 0 // is not counted
	r := estimate.Typical(1)
	t.Logf("%s: %.3g of %.3g predicted operations, %.2f of the predicted time", what, got.Operations(), want.Operations(), got.Seconds(r)/want.Seconds(r))
	if g, w := got.Seconds(r), want.Seconds(r); g > w*effortFactor || w > g*effortFactor {
		for k := range got {
			t.Logf("%v: counted %.3g, predicted %.3g", effort.Kind(k), got[k], want[k])
		}
		t.Errorf("%s: %.4g s of work, %.4g s predicted", what, g, w)
	}
}

// effortOf is what effort needs to know of a job.
func effortOf(j job, probe [][]int32) *estimate.Calibration {
	return &estimate.Calibration{
		Chain: j.Chain, Windows: len(j.Windows), Length: len(j.Windows[0]), Probe: len(probe), Sequential: j.Sequential,
		Bits: func(tensor string) int { return j.Specs[tensor].Bits },
	}
}

// What effort predicts from descriptions is what calibration counts.
func TestEffort(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	tuner := quant.NewDistill()
	tuner.Steps, tuner.Tokens = 2, 128
	dense := func(tied bool) func(t *testing.T) (*arch.Decoder, tensor.Source) {
		return func(t *testing.T) (*arch.Decoder, tensor.Source) { return madeUp(t, 96, 160, tied) }
	}
	family := func(name string) func(t *testing.T) (*arch.Decoder, tensor.Source) {
		return func(t *testing.T) (*arch.Decoder, tensor.Source) { return openCheckpoint(t, familyDir(name)) }
	}
	for _, c := range []struct {
		name    string
		open    func(t *testing.T) (*arch.Decoder, tensor.Source)
		methods []quant.Method
		length  int // of windows; 64 if 0
	}{
		{"gptq", dense(true), []quant.Method{quant.NewGPTQ()}, 0},
		{"gptq with a head", dense(false), []quant.Method{quant.NewGPTQ()}, 0},
		{"gptq of experts", family("qwen3_moe"), []quant.Method{quant.NewGPTQ()}, 0},
		{"gptq of experts with little text", family("qwen3_moe"), []quant.Method{quant.NewGPTQ()}, 12},
		{"gptq of delta nets", family("qwen3_5"), []quant.Method{quant.NewGPTQ()}, 0},
		{"gptq of both", family("qwen3_next"), []quant.Method{quant.NewGPTQ()}, 0},
		{"search", dense(true), []quant.Method{quant.NewSearch()}, 0},
		{"awq", dense(true), []quant.Method{quant.NewAWQ(), quant.NewSearch()}, 0},
		{"distill", dense(true), []quant.Method{quant.RTN{}, tuner}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, src := c.open(t)
			windows := randomText(d, 10, cmp.Or(c.length, 64))
			j, probe := newJob(t, d, src, windows[:8], c.methods...), windows[8:]
			j.Dir = t.TempDir()
			e := effortOf(j, probe)
			var f *Finished
			predicted(t, "codes", e.Encoding(d), func(ctx context.Context) (err error) {
				f, err = Quantize(ctx, j.Options, j.Scheme)
				return err
			})
			predicted(t, "divergence", e.Divergence(d), func(ctx context.Context) error {
				_, err := Divergence(ctx, j.Options, j.Scheme, f, probe)
				return err
			})
			if j.Chain.Tuner != nil {
				predicted(t, "tuning", e.Tuning(d), func(ctx context.Context) error {
					_, err := Tune(ctx, j.Options, j.Scheme, f)
					return err
				})
			}
		})
	}
}

func TestEffortOfSensitivities(t *testing.T) {
	t.Parallel()
	d, src := madeUp(t, 96, 160, true)
	windows := randomText(d, 6, 64)
	j, probe := newJob(t, d, src, windows[:4], quant.NewGPTQ()), windows[4:]
	m := measuring(t, probe, quant.NewGPTQ())
	options, lookups := len(m.Options(d.Head.Weight, false)), len(m.Options(d.Head.Weight, true))
	work := effortOf(j, probe).Sensitivities(d, estimate.Measuring{Options: options, Lookups: lookups, Groups: Groups(d)})
	predicted(t, "sensitivities", work.Total(), func(ctx context.Context) error {
		o := j.Options
		o.Dir = t.TempDir()
		_, err := Measure(ctx, o, m)
		return err
	})
}

func TestEffortOfOwnText(t *testing.T) {
	t.Parallel()
	d, src := madeUp(t, 96, 160, true)
	moe, weights := openCheckpoint(t, familyDir("qwen3_moe"))
	for _, c := range []struct {
		what   string
		sample func(ctx context.Context, s Sampling) error
		d      *arch.Decoder
	}{
		{"attention", func(ctx context.Context, s Sampling) error { _, err := Sample(ctx, d, src, s); return err }, d},
		{"experts", func(ctx context.Context, s Sampling) error { _, err := Sample(ctx, moe, weights, s); return err }, moe},
	} {
		s := Sampling{Windows: 6, Length: 48, First: []int32{1}, Seed: 4, Threads: 1}
		predicted(t, c.what, estimate.OwnText(c.d, s.Windows, s.Length, s.Windows), func(ctx context.Context) error {
			return c.sample(ctx, s)
		})
	}
}
