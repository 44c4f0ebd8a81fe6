package stage

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/verify"
)

// ChatTemplate says which chat template the package carries; the zero value is the checkpoint's default one.
type ChatTemplate struct {
	Name     string `json:"name,omitempty" jsonschema_description:"Name of one of the checkpoint's templates such as tool_use; default if absent."`
	Path     string `json:"path,omitempty" jsonschema_description:"File with a template that replaces those of the checkpoint, relative to the recipe."`
	Text     string `json:"text,omitempty" jsonschema_description:"Template that replaces those of the checkpoint; the recipe within a package has what path named here."`
	Simplify bool   `json:"simplify,omitempty" jsonschema_description:"Where the engine cannot render the template carry a plain one, without tools and thinking, instead of refusing the model."`
}

// defaultTemplate names the template that is taken where none is asked for.
const defaultTemplate = "default"

// chooseTemplate makes the facts those of the template that the recipe asks for.
func (s *Source) chooseTemplate(ctx context.Context, job *pipeline.Job, c ChatTemplate) error {
	f := &s.Facts
	text, err := f.choose(job, c)
	if err != nil {
		return err
	}
	f.takeTemplate(text, s.Tokenizer)
	return f.PackTemplate(ctx, c.Simplify, s.Tokenizer.Decode(f.Prefix, false))
}

// choose finds the template that the recipe asks for.
func (f *Facts) choose(job *pipeline.Job, c ChatTemplate) (string, error) {
	sec := job.Recipe.Stages["rewrite"]
	switch {
	case c.Path != "" && c.Text != "" || c.Name != "" && c.Path+c.Text != "":
		return "", sec.Errorf("template", "name, path and text exclude each other")
	case c.Text != "":
		return c.Text, nil
	case c.Path != "":
		b, err := os.ReadFile(job.Recipe.Resolve(c.Path))
		if err != nil {
			return "", sec.Errorf("template.path", "%v", err)
		}
		if len(b) == 0 {
			return "", sec.Errorf("template.path", "the file is empty")
		}
		return string(b), nil
	case c.Name != "":
		t, ok := f.Templates[c.Name]
		if !ok {
			return "", sec.Errorf("template.name", "the checkpoint has no chat template %q, it has %s", c.Name, strings.Join(slices.Sorted(maps.Keys(f.Templates)), ", "))
		}
		return t, nil
	case f.ChatTemplate == "" && len(f.Templates) > 0:
		return "", fmt.Errorf("chat_template: none of %s is named %s: set rewrite.template.name: %w",
			strings.Join(slices.Sorted(maps.Keys(f.Templates)), ", "), defaultTemplate, tensor.ErrUnsupported)
	}
	return f.ChatTemplate, nil
}

// ofManifest makes the facts those of the template that the recipe of a package asked for.
func (s *Source) ofManifest(m *manifest.Manifest) error {
	if m == nil || m.Recipe == nil {
		return nil
	}
	r, err := recipes.Load(m.Recipe, manifest.FileName, Sections())
	if err != nil {
		return nil // of another version of this program
	}
	var w Rewrite
	if err := r.Stages["rewrite"].Decode(&w); err != nil {
		return nil
	}
	f := &s.Facts
	f.Simplified = w.Template.Simplify
	if w.Template.Text != "" {
		f.takeTemplate(w.Template.Text, s.Tokenizer)
	} else if t, ok := f.Templates[w.Template.Name]; ok {
		f.takeTemplate(t, s.Tokenizer)
	} else if w.Template.Name != "" {
		return fmt.Errorf("the checkpoint has no chat template %q, which the package was made with: %w", w.Template.Name, tensor.ErrUnsupported)
	}
	return nil
}

// PackTemplate decides which template the package carries, PackagedTemplate, so that the engine makes of it what
// transformers makes of ChatTemplate: that one itself, or else a rewritten one, or else, with simplify, a plain one. Which
// it is is proven by rendering conversations both ways. Prefix is the text of the ids before every prompt. Where none is
// right the error, a tensor.ErrUnsupported, names what the engine lacks.
func (f *Facts) PackTemplate(ctx context.Context, simplify bool, prefix string) error {
	f.PackagedTemplate = f.ChatTemplate
	if f.ChatTemplate == "" {
		return nil
	}
	source, err := template.Parse("chat_template", f.ChatTemplate)
	if err != nil {
		return err
	}
	lowered, left := source.Lower()
	first := ""
	if f.BOS != "" && prefix == "" {
		// The engine knows no bos_token.
		first = "{% set bos_token = " + template.Quote(f.BOS) + " %}\n"
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
	// One line says what; the constructs may be many.
	reason := strings.Join(why[:min(len(why), 3)], "; ")
	if reason == "" {
		reason = closest.Different[0].String()
	}
	return fmt.Errorf("the engine renders the chat template differently on %d of %d conversations, and it could not be rewritten: %s; "+
		"set rewrite.template.simplify to carry a plain one: %w", len(closest.Different), len(conversations.All())-len(closest.Refused), reason, tensor.ErrUnsupported)
}

func (f *Facts) compareTemplate(ctx context.Context, packaged, prefix string) (*verify.TemplateFindings, error) {
	return verify.CompareTemplates(ctx, verify.ChatTemplates{
		Source: f.ChatTemplate, Packaged: packaged, BOS: f.BOS, EOS: f.EOS, Prefix: prefix,
	}, conversations.All())
}

// withoutFirst lets a lowered template write bos, except for the one at the start of the text, which the prefix ids are.
func withoutFirst(lowered, bos string) string {
	const mark = "\x01" // of a text's start; no text has it
	q := template.Quote
	return "{% set bos_token = " + q(bos) + " %}\n{% macro _text() %}\n" + lowered + "{% endmacro %}\n" +
		"{{ namespace(v=" + q(mark) + " ~ _text()).v.replace(" + q(mark+bos) + ", '').replace(" + q(mark) + ", '') }}"
}
