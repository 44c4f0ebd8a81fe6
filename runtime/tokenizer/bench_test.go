package tokenizer

import (
	"os"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// benchText is the text to measure with: a file of the caller's, or what the corpus has of plain words.
func benchText(b *testing.B) string {
	b.Helper()
	if path := os.Getenv("TOKENIZER_BENCH_TEXT"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		return string(text)
	}
	return strings.Repeat("The quick brown fox, it's said, jumped over 13 lazy dogs.\nfunc main() { fmt.Println(\"hi\") }\n\n 你好，世界！ ", 10000)
}

func BenchmarkScan(b *testing.B) {
	text := benchText(b)
	for name, pattern := range map[string]string{"gpt2": regex.GPT2, "llama3": regex.Llama3, "qwen2": regex.Qwen2,
		"o200k": regex.O200K, "tekken": regex.Tekken, "qwen3.5": regex.Qwen35} {
		b.Run(name, func(b *testing.B) {
			p := &splitStage{scan: regex.Scanners[pattern], behavior: isolated}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				p.split(piece{text: text}, func(piece) {})
			}
		})
	}
	b.Run("engine", func(b *testing.B) {
		find, err := regex.Compile(regex.Llama3)
		if err != nil {
			b.Fatal(err)
		}
		p := &splitStage{find: find, behavior: isolated}
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			p.split(piece{text: text}, func(piece) {})
		}
	})
}

// BenchmarkEncodeFile takes a tokenizer.json of the caller's, or that of tiny-qwen3.
func BenchmarkEncodeFile(b *testing.B) {
	file := tokenizertest.Fixture(b, "tiny-qwen3")
	if path := os.Getenv("TOKENIZER_BENCH_FILE"); path != "" {
		var err error
		if file, err = os.ReadFile(path); err != nil {
			b.Fatal(err)
		}
	}
	tok, text := mustLoad(b, file), benchText(b)
	lines := strings.SplitAfter(text, "\n")
	b.Run("text", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			tok.Encode(text, false)
		}
	})
	b.Run("lines", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			for _, line := range lines {
				tok.Encode(line, false)
			}
		}
	})
}
