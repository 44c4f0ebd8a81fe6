package verify_test

import (
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/verify"
)

// BenchmarkEvaluate takes four windows of 512 tokens through tiny-qwen3: its checkpoint, its 4-bit package in each
// mode, and all of them side by side with the statistics.
func BenchmarkEvaluate(b *testing.B) {
	s := open(b, goodPackage(b), tiny)
	s.Options.Window, s.Options.Windows, s.Options.DecodeTokens, s.Options.Threads = 512, 4, 0, 0
	windows, err := s.WindowsOfText()
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, f func(b *testing.B) error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := f(b); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(512*len(windows)*b.N)/b.Elapsed().Seconds(), "tok/s")
		})
	}
	run("reference", func(b *testing.B) error {
		return s.Source.Reference.(*reference.Model).Score(b.Context(), windows, func(reference.Tile) error { return nil })
	})
	for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
		sess, err := runtime.NewSession(s.Package, cpu.Backend{}, runtime.Options{Mode: mode, CacheBytes: 1 << 28})
		if err != nil {
			b.Fatal(err)
		}
		run(mode.String(), func(b *testing.B) error {
			if err := sess.Advance(b.Context(), windows); err != nil {
				return err
			}
			for at := 0; at < len(windows)*512; at += 512 {
				if _, err := sess.Logits(b.Context(), at, at+512); err != nil {
					return err
				}
			}
			return nil
		})
	}
	run("all", func(b *testing.B) error {
		_, err := verify.Evaluate(b.Context(), s)
		return err
	})
}
