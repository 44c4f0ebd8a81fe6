package runtime_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/verify"
)

// tinyPackage makes, once, the 4-bit package of the trained model.
var tinyPackage = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "tiny")
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", err
	}
	return stagetest.Export(context.Background(), dir, "../testdata/tiny-qwen3", "verify: {enabled: false}")
})

// BenchmarkRun feeds tiny-qwen3 a window of 256 tokens at once, or tokens one by one behind it.
func BenchmarkRun(b *testing.B) {
	dir, err := tinyPackage()
	if err != nil {
		b.Fatal(err)
	}
	p := openPackage(b, dir)
	window := p.Tokenizer.Encode(verify.BuiltIn)[:256]
	for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
		b.Run(mode.String()+"/prefill", func(b *testing.B) {
			s := session(b, p, mode)
			for b.Loop() {
				s.Reset()
				if _, err := s.Forward(b.Context(), window); err != nil {
					b.Fatal(err)
				}
			}
			tokensPerSecond(b, len(window))
		})
		b.Run(mode.String()+"/decode", func(b *testing.B) {
			s := session(b, p, mode)
			decodeAll(b, s, window)
			tokensPerSecond(b, 64)
		})
	}
}

func decodeAll(b *testing.B, s *runtime.Session, window []int32) {
	for b.Loop() {
		b.StopTimer()
		s.Reset()
		if _, err := s.Prefill(b.Context(), window[:192]); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		for _, t := range window[192:] {
			if _, err := s.Decode(b.Context(), t); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func tokensPerSecond(b *testing.B, tokens int) {
	b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
}
