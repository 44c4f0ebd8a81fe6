package dialect

import (
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// TestTranslate: patterns of models have a form for the engine, whose matches are those of the pattern.
func TestTranslate(t *testing.T) {
	const (
		o200k = mixedCase + `(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
			`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
		kimi = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
			`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
			`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
		cl100k = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	)
	plain := []string{
		"The QUICK brownFox's 12345 jumps!?\n\n  over", "ESTÁ FRÍA. ¿DÓNDE? Élan naïve ÉCOLE", "Привет МИР, как дела",
		"I'M you're WE'LL", "x = [1, 2];\r\n\tfoo(bar)  ", "  12 €", "…—«a»",
	}
	for name, c := range map[string]struct {
		pattern string
		losses  int
		texts   []string
	}{
		"gpt2":   {regex.GPT2, 0, append([]string{"中文 and 日本語", "приветМир"}, plain...)},
		"llama3": {regex.Llama3, 0, append([]string{"中文 and 日本語", "приветМир"}, plain...)},
		"o200k":  {o200k, 1, append([]string{"中文and日本語"}, plain...)},
		"kimi":   {kimi, 2, append([]string{"中文"}, plain...)},
		"cl100k": {cl100k, 1, append([]string{"中文 and 日本語", "приветМир"}, plain...)},
	} {
		form, losses, err := Translate(c.pattern)
		if err != nil || len(losses) != c.losses {
			t.Errorf("%s: losses %q, %v", name, losses, err)
			continue
		}
		engine, _, err := parse(form)
		if err != nil {
			t.Fatal(err)
		}
		find, err := regex.Compile(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.texts {
			got, err := engine.find(nil, s)
			if want := find(s); err != nil || !slices.Equal(want, got) {
				t.Errorf("%s: %q is cut at %v, the pattern cuts at %v; %v", name, s, got, want, err)
			}
		}
	}
	for pattern, want := range map[string]string{`[一-龥]+`: "", `a++b?+[+*+]\++`: `a+b?[+*+]\++`} {
		if got, _, err := Translate(pattern); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", pattern, got, err, want)
		}
	}
}
