package tokenizer

import (
	"os"
	"strings"
	"testing"
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
	for name, pattern := range map[string]string{"gpt2": patternGPT2, "llama3": patternLlama3, "qwen2": patternQwen2, "o200k": patternO200K, "tekken": patternTekken, "qwen3.5": patternQwen35} {
		b.Run(name, func(b *testing.B) {
			p := &splitStage{scan: scanners[pattern], behavior: isolated}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				p.split(piece{text, true}, func(piece) {})
			}
		})
	}
	b.Run("engine", func(b *testing.B) {
		re, err := parseRegex(patternLlama3)
		if err != nil {
			b.Fatal(err)
		}
		p := &splitStage{find: re.findAll, behavior: isolated}
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			p.split(piece{text, true}, func(piece) {})
		}
	})
}

// BenchmarkEncodeFile takes a tokenizer.json of the caller's, or that of tiny-qwen3.
func BenchmarkEncodeFile(b *testing.B) {
	file := fixture(b, "tiny-qwen3")
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
