package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// tokenizerParity: the packaged tokenizer gives the ids of the source's, on the evaluation text and on strings
// that are hard for tokenizers.
type tokenizerParity struct{}

func (tokenizerParity) String() string { return "tokenizer" }

func (tokenizerParity) Check(_ context.Context, s *Subject) (Finding, error) {
	if s.Source == nil {
		return skip(needsSource)
	}
	plain, plainBad := compareIDs(s.Source.Tokenizer, s.Package.Tokenizer, strings.SplitAfter(s.Options.Text, "\n"))
	hard, hardBad := compareIDs(s.Source.Tokenizer, s.Package.Tokenizer, hardStrings)
	share := func(bad []string, n int) float64 { return float64(len(bad)) / float64(max(1, n)) }
	l := s.Options.Limits
	value := map[string]float64{
		"plain": float64(plain), "plain_different": float64(len(plainBad)), "hard": float64(hard), "hard_different": float64(len(hardBad)),
		"plain_limit": l.TokenizerPlain, "hard_limit": l.TokenizerHard,
	}
	if share(plainBad, plain) > l.TokenizerPlain {
		return fail(value, "%d of %d plain strings get other ids, such as %q", len(plainBad), plain, clip(plainBad[0]))
	}
	if share(hardBad, hard) > l.TokenizerHard {
		return fail(value, "%d of %d hard strings get other ids, such as %q", len(hardBad), hard, clip(hardBad[0]))
	}
	if got, want := s.Package.Tokenizer.VocabSize(), s.Source.Tokenizer.VocabSize(); got < want {
		return fail(value, "the packaged tokenizer has %d entries, the source %d", got, want)
	}
	// Other tools may mean other tokens by "special" and "stop"; ours must carry those of the source.
	if what := s.otherFacts(); s.Manifest != nil && what != "" {
		return fail(value, "%s", what)
	}
	return pass(value, "same ids on %d of %d plain and %d of %d hard strings", plain-len(plainBad), plain, hard-len(hardBad), hard)
}

// otherFacts names the first fact in which the package's tokenizer differs from the source.
func (s *Subject) otherFacts() string {
	want, got := s.Source.Facts, s.Package.Tokenizer
	sorted := func(ids []int32) []int32 { return slices.Sorted(slices.Values(ids)) }
	jinja := s.Package.Config.Jinja
	switch {
	case !slices.Equal(sorted(got.Stop()), sorted(want.Stop)):
		return fmt.Sprintf("stop ids are %v, the source's %v", got.Stop(), want.Stop)
	case !slices.Equal(sorted(got.Special()), sorted(want.Special)):
		return fmt.Sprintf("special ids are %v, the source's %v", got.Special(), want.Special)
	case !slices.Equal(got.Prefix(), want.Prefix):
		return fmt.Sprintf("prefix ids are %v, the source's %v", got.Prefix(), want.Prefix)
	case got.ChatTemplate() != jinja.ChatTemplate:
		return "llm_config.json and the tokenizer file hold different chat templates"
	case got.EOS() != want.EOS || jinja.EOS != want.EOS:
		return fmt.Sprintf("eos is %q, the source's %q", got.EOS(), want.EOS)
	}
	return ""
}

// compareIDs returns the number of strings and those whose ids differ.
func compareIDs(want *tokenizer.Tokenizer, got *tokenizer.Engine, texts []string) (n int, bad []string) {
	for _, t := range texts {
		if t == "" {
			continue
		}
		n++
		w := append(want.PrefixIDs(), want.Encode(t, false)...)
		if !slices.Equal(w, got.Encode(t)) {
			bad = append(bad, t)
		}
	}
	return n, bad
}

func clip(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
