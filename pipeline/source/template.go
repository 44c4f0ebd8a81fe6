package source

import (
	"context"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/template/lower"
	"github.com/llmexport/llmexport/runtime/template/syntax"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// DefaultTemplate is the name of the template that is used unless the recipe names another.
const DefaultTemplate = "default"

// PackTemplate chooses PackagedTemplate, the template of the package, such that the engine renders it as transformers renders
// ChatTemplate: that template itself, else a rewritten one, else, with simplify, a plain one. Conversations rendered both ways
// prove the choice. Prefix is the text of the ids before every prompt. If no template works, the error is a
// tensor.ErrUnsupported that names what the engine lacks.
func (f *Facts) PackTemplate(ctx context.Context, simplify bool, prefix string) error {
	f.PackagedTemplate = f.ChatTemplate
	if f.ChatTemplate == "" {
		return nil
	}
	source, err := template.Parse("chat_template", f.ChatTemplate)
	if err != nil {
		return err
	}
	lowered, left := lower.Template(source.Syntax())
	first := ""
	if f.BOS != "" && prefix == "" {
		// The engine knows no bos_token.
		first = "{% set bos_token = " + syntax.Quote(f.BOS) + " %}\n"
	}
	candidates := []struct{ text, how string }{
		{first + f.ChatTemplate, ""},
		{first + lowered, "the chat template is rewritten, as the engine renders the source's differently"},
	}
	if f.BOS != "" && strings.HasPrefix(prefix, f.BOS) {
		candidates = append(candidates, struct{ text, how string }{
			withoutFirst(lowered, f.BOS),
			"the chat template is rewritten, as the engine renders the source's differently; " + f.BOS + " at its start comes from the prefix ids",
		})
	}
	var closest *verify.TemplateFindings
	for i, c := range candidates {
		if i == 0 && first != "" && !strings.Contains(f.ChatTemplate, "bos_token") {
			c.text = f.ChatTemplate
		}
		found, err := f.compareTemplate(ctx, c.text, prefix)
		if err != nil {
			return err
		}
		if len(found.Different) == 0 && found.Equal == 0 {
			return fmt.Errorf("chat_template: it refuses all %d conversations, so that nothing shows what the engine makes of it; "+
				"set rewrite.template.name or rewrite.template.path to take another: %w", len(found.Refused), tensor.ErrUnsupported)
		}
		if len(found.Different) == 0 {
			f.PackagedTemplate = c.text
			if c.how != "" {
				f.Warnings = append(f.Warnings, c.how)
			}
			return nil
		}
		if closest == nil || len(found.Different) < len(closest.Different) {
			closest = found
		}
	}
	if simplify {
		return f.simplifyTemplate(ctx, source, prefix)
	}
	var why []string
	for _, e := range left {
		why = append(why, e.Error())
	}
	// There may be many; the message names a few.
	reason := strings.Join(why[:min(len(why), 3)], "; ")
	if reason == "" {
		reason = closest.Different[0].String()
	}
	return fmt.Errorf("the engine renders the chat template differently on %d of %d conversations, and it could not be rewritten: %s; "+
		"set rewrite.template.simplify to use a plain one: %w",
		len(closest.Different), len(conversations.All())-len(closest.Refused), reason, tensor.ErrUnsupported)
}

func (f *Facts) compareTemplate(ctx context.Context, packaged, prefix string) (*verify.TemplateFindings, error) {
	return verify.CompareTemplates(ctx, verify.ChatTemplates{
		Source: f.ChatTemplate, Packaged: packaged, BOS: f.BOS, EOS: f.EOS, Prefix: prefix,
	}, conversations.All())
}

// withoutFirst returns a lowered template that writes bos except at the start of the text, where the prefix ids are.
func withoutFirst(lowered, bos string) string {
	const mark = "\x01" // the start of a text; no text contains it
	q := syntax.Quote
	return "{% set bos_token = " + q(bos) + " %}\n{% macro _text() %}\n" + lowered + "{% endmacro %}\n" +
		"{{ namespace(v=" + q(mark) + " ~ _text()).v.replace(" + q(mark+bos) + ", '').replace(" + q(mark) + ", '') }}"
}
