package verify

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tokenizer/parity"
	"github.com/llmexport/llmexport/verify/hftokenizers"
)

// Tokenizer checks that the packaged tokenizer returns the same ids as the source's, on the evaluation text, which counts as
// plain, and on the corpus of parity.
type Tokenizer struct {
	MaxPlain float64 `json:"max_plain" jsonschema:"minimum=0,maximum=1" jsonschema_description:"Share of plain strings."`
	MaxHard  float64 `json:"max_hard" jsonschema:"minimum=0,maximum=1" jsonschema_description:"Share of hard strings."`
	Strings  int     `json:"strings,omitempty" jsonschema:"minimum=0" jsonschema_description:"Strings that are compared, spread evenly over those that there are; 0 is all of them."`
}

func (*Tokenizer) String() string { return "tokenizer" }

// Hint implements Check.
func (*Tokenizer) Hint(map[string]float64) string {
	return "llmexport tokenize PACKAGE --source CHECKPOINT shows where ids differ; verify.tokenizer.max_plain and max_hard of the recipe are the limits"
}

// Validate implements Validator.
func (k *Tokenizer) Validate() (key, problem string) {
	switch {
	case k.Strings < 0:
		return "strings", "must not be negative"
	case !(k.MaxPlain >= 0 && k.MaxPlain <= 1):
		return "max_plain", "must be between 0 and 1"
	case !(k.MaxHard >= 0 && k.MaxHard <= 1):
		return "max_hard", "must be between 0 and 1"
	}
	return "", ""
}

// Check implements Check.
func (k *Tokenizer) Check(ctx context.Context, s *Subject) (Finding, error) {
	if s.Source == nil {
		return skip(needsSource)
	}
	list, all := s.strings()
	measure := func() Parity { return s.parity(list) }
	if s.Recall == nil {
		s.Recall = func(_ context.Context, measure func() Parity) (Parity, error) { return measure(), nil }
	}
	r, err := s.Recall(ctx, measure)
	if err != nil {
		return Finding{}, err
	}
	value := map[string]float64{
		"plain": float64(r.Plain.Strings), "plain_different": float64(r.Plain.Different),
		"hard": float64(r.Hard.Strings), "hard_different": float64(r.Hard.Different),
		"invalid": float64(r.Invalid.Strings), "invalid_different": float64(r.Invalid.Different),
		"plain_limit": k.MaxPlain, "hard_limit": k.MaxHard,
	}
	for group, n := range r.Groups {
		if n.Different > 0 {
			value["different_"+group] = float64(n.Different)
		}
	}
	for _, half := range []struct {
		name  string
		n     parity.Count
		limit float64
		first string
	}{{"plain", r.Plain, k.MaxPlain, r.FirstPlain}, {"hard", r.Hard, k.MaxHard, r.FirstHard}} {
		limit := half.limit
		if n := float64(half.n.Strings); len(list) < all { // a sample may exceed it by three times its standard error
			limit += float64(3 * math.Sqrt(float64(limit*(1-limit))/n))
		}
		if half.n.Share() > limit {
			return fail(value, "%d of %d %s strings get different ids, such as %s", half.n.Different, half.n.Strings, half.name, half.first)
		}
	}
	if hftokenizers.Linked {
		what, err := s.library(list, value)
		if err != nil {
			return Finding{}, err
		}
		if what != "" {
			return fail(value, "%s", what)
		}
	}
	if got, want := s.Package.Tokenizer.VocabSize(), s.Source.Tokenizer.VocabSize(); got < want {
		return fail(value, "the packaged tokenizer has %d entries, the source %d", got, want)
	}
	// Packages of other tools may list other special and stop tokens; ours must carry those of the source.
	if what := s.otherFacts(); s.Manifest != nil && what != "" {
		return fail(value, "%s", what)
	}
	sample := ""
	if len(list) < all {
		sample = fmt.Sprintf(", a sample of %d", all)
	}
	return pass(value, "same ids on %d of %d plain and %d of %d hard strings, and on %d of %d that are not UTF-8%s",
		r.Plain.Strings-r.Plain.Different, r.Plain.Strings,
		r.Hard.Strings-r.Hard.Different, r.Hard.Strings, r.Invalid.Strings-r.Invalid.Different, r.Invalid.Strings, sample)
}

// Parity is the result of comparing the tokenizers of a package and its source. It depends only on the bytes of both,
// the strings, and this program, so it can be cached (see [Subject.Recall]).
type Parity struct {
	Plain, Hard, Invalid parity.Count
	Groups               map[string]parity.Count
	// FirstPlain and FirstHard describe the first strings that get different ids.
	FirstPlain, FirstHard string
}

// parity compares the tokenizers on the strings of list.
func (s *Subject) parity(list []parity.String) Parity {
	lead := s.lead()
	want := func(text string) []int32 {
		return append(slices.Clone(s.Source.Facts.Prefix), s.Source.Tokenizer.Encode(lead+text, false)...)
	}
	got := func(text string) []int32 { return s.Package.Tokenizer.Encode(lead + text) }
	r := parity.Compare(want, got, list, max(1, s.Options.Threads))
	first := func(hard bool) string {
		d := r.FirstOf(hard)
		if d == nil {
			return ""
		}
		return fmt.Sprintf("%q (%s)", clip(d.String.Text), d.String.Class)
	}
	return Parity{r.Plain, r.Hard, r.Invalid, r.Groups, first(false), first(true)}
}

// strings returns the corpus and the lines of the text, or a sample of them, and their total number.
func (s *Subject) strings() (list []parity.String, all int) {
	list = slices.Clone(parity.Corpus())
	for line := range strings.Lines(s.Options.Text) {
		list = append(list, parity.String{Class: "evaluation", Text: line})
	}
	all = len(list)
	if n := s.Options.Checks.Tokenizer.Strings; n > 0 && n < all {
		for i := range n {
			list[i] = list[i*all/n]
		}
		list = list[:n]
	}
	return list, all
}

// library compares the source's tokenizer with the library tokenizers on the strings that the library accepts, and returns a
// description of the first difference or "". It sets "library" in value to the number of these strings and
// "library_different" to the number of those whose ids differ.
func (s *Subject) library(list []parity.String, value map[string]float64) (string, error) {
	b, err := s.Source.TokenizerJSON()
	if err != nil {
		return "", err
	}
	lib, err := hftokenizers.Open(b)
	if err != nil {
		return err.Error(), nil
	}
	list = slices.DeleteFunc(slices.Clone(list), func(s parity.String) bool { return !hftokenizers.Takes(s.Text) })
	r := parity.Compare(
		func(text string) []int32 { return lib.Encode(text, true) },
		func(text string) []int32 { return s.Source.Tokenizer.Encode(text, true) }, list, max(1, s.Options.Threads))
	value["library"], value["library_different"] = float64(len(list)), float64(r.Plain.Different+r.Hard.Different)
	if len(r.First) > 0 {
		first := r.First[0].String
		return fmt.Sprintf("the library tokenizers returns different ids for %.0f of %d strings, such as %q (%s)",
			value["library_different"], len(list), clip(first.Text), first.Class), nil
	}
	return "", nil
}

// lead returns a special token to put before every text. A tokenizer may put a space before a text but not after special
// tokens, which the engine cannot do; packages of chat models are right for prompts, all of which begin with such a token.
func (s *Subject) lead() string {
	if !s.Source.Tokenizer.SpaceFirst() || s.Package.Tokenizer.ChatTemplate() == "" {
		return ""
	}
	for _, a := range s.Source.Tokenizer.AddedTokens() {
		if a.Special && !a.LStrip && !a.RStrip {
			return a.Content
		}
	}
	return ""
}

// otherFacts describes the first fact in which the package's tokenizer differs from the source, or returns
// "".
func (s *Subject) otherFacts() string {
	want, got := s.Source.Facts, s.Package.Tokenizer
	sorted := func(ids []int32) []int32 { return slices.Sorted(slices.Values(ids)) }
	jinja := s.Package.Config.Jinja
	// Those that strip white space are added tokens only, see tokenizer.MTOK.
	special := sorted(want.Special)
	for _, a := range s.Source.Tokenizer.AddedTokens() {
		if a.LStrip || a.RStrip {
			special = slices.DeleteFunc(special, func(id int32) bool { return id == a.ID })
		}
	}
	switch {
	case !slices.Equal(sorted(got.Stop()), sorted(want.Stop)):
		return fmt.Sprintf("stop ids are %v, the source's %v", got.Stop(), want.Stop)
	case !slices.Equal(sorted(got.Special()), special):
		return fmt.Sprintf("special ids are %v, the source's %v", got.Special(), special)
	case !slices.Equal(got.Prefix(), want.Prefix):
		return fmt.Sprintf("prefix ids are %v, the source's %v", got.Prefix(), want.Prefix)
	case got.ChatTemplate() != jinja.ChatTemplate:
		return "llm_config.json and the tokenizer file hold different chat templates"
	case got.EOS() != want.EOS || jinja.EOS != want.EOS:
		return fmt.Sprintf("eos is %q, the source's %q", got.EOS(), want.EOS)
	}
	return ""
}

func clip(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
