package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/template/conversations"
)

// templateParity: the engine renders conversations with the packaged chat template as transformers does with the
// source's, the prefix is not repeated, and the stop ids include all of the source's.
type templateParity struct{}

func (templateParity) String() string { return "template" }

func (templateParity) Hint(map[string]float64) string {
	return "llmexport template PACKAGE --engine shows the engine's rendering of a conversation; " +
		"rewrite.template of the recipe sets another template, or a plain one with simplify"
}

func (templateParity) Check(ctx context.Context, s *Subject) (Finding, error) {
	if s.Source == nil {
		return skip(needsSource)
	}
	facts, tok, jinja := s.Source.Facts, s.Package.Tokenizer, s.Package.Config.Jinja
	packaged := jinja.ChatTemplate // the engine prefers it
	if packaged == "" {
		packaged = tok.ChatTemplate()
	}
	switch {
	case facts.ChatTemplate == "" && packaged == "":
		return skip("the source has no chat template")
	case facts.ChatTemplate == "":
		return skip("the source has no chat template to compare with the package's")
	case packaged == "":
		return fail(nil, "the package has no chat template, but the source has one")
	}
	if missing := missingIDs(facts.Stop, tok.Stop()); s.Manifest != nil && len(missing) > 0 {
		return fail(nil, "the stop ids %v of the source are missing", missing)
	}
	all := conversations.All()
	f, err := CompareTemplates(ctx, ChatTemplates{
		Source: facts.ChatTemplate, Packaged: packaged, BOS: facts.BOS, EOS: facts.EOS, Prefix: tok.Decode(tok.Prefix()),
	}, all)
	if err != nil {
		return Finding{}, err
	}
	value := map[string]float64{
		"conversations": float64(len(all)), "equal": float64(f.Equal), "ordered": float64(len(f.Ordered)),
		"refused": float64(len(f.Refused)), "different": float64(len(f.Different)),
	}
	if facts.Simplified && len(f.Different) > 0 {
		return f.simplified(value)
	}
	if f.Equal == 0 && len(f.Different) == 0 {
		return fail(value, "the source's template rejects all %d conversations", len(all))
	}
	if len(f.Different) > 0 {
		return fail(value, "%d of %d conversations are rendered differently: %s", len(f.Different), len(all)-len(f.Refused), f.Different[0])
	}
	return pass(value, "%s", f)
}

// simplified checks a template that the recipe simplified: it must be right on plain conversations.
func (f *TemplateFindings) simplified(value map[string]float64) (Finding, error) {
	var names []string
	for _, d := range f.Different {
		if slices.Contains(PlainConversations, d.Conversation) {
			return fail(value, "the simplified template renders a plain conversation differently: %s", d)
		}
		names = append(names, d.Conversation)
	}
	return pass(value, "%s; simplified by the recipe, so these are rendered differently: %s", f, strings.Join(names, ", "))
}

// PlainConversations are the conversations that a simplified template must render right.
var PlainConversations = []string{"one-turn", "system", "several-turns", "no-system", "no-prompt"}

func (f *TemplateFindings) String() string {
	s := fmt.Sprintf("the same text of %d conversations", f.Equal)
	if n := len(f.Ordered); n > 0 {
		s += fmt.Sprintf(", %d of them with keys of objects in the engine's order", n)
	}
	if n := len(f.Refused); n > 0 {
		s += fmt.Sprintf("; %d that the source's template rejects have unspecified output (%s)", n, strings.Join(f.Refused, ", "))
	}
	if f.Unprefixed > 0 {
		s += "; the engine adds its prefix ids to all, but the source's template does not"
	}
	return s
}

func missingIDs(want, got []int32) []int32 {
	var missing []int32
	for _, id := range want {
		if !slices.Contains(got, id) {
			missing = append(missing, id)
		}
	}
	return missing
}
