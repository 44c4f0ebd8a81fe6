package stage

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// ChatTemplate selects the chat template of the package; the zero value is the checkpoint's default one.
type ChatTemplate struct {
	Name     string `json:"name,omitempty" jsonschema_description:"Name of one of the checkpoint's templates such as tool_use; default if absent."`
	Path     string `json:"path,omitempty" jsonschema_description:"File with a template that replaces those of the checkpoint, relative to the recipe."`
	Text     string `json:"text,omitempty" jsonschema_description:"Template that replaces those of the checkpoint; the recipe in a package has the text of path here."`
	Simplify bool   `json:"simplify,omitempty" jsonschema_description:"If the engine cannot render the template, replace it by a plain one without tools and thinking instead of rejecting the model."`
}

// pack applies the template that the recipe selects to the facts of a source, and packs it.
func (c ChatTemplate) pack(ctx context.Context, r *Run, src *source.Source) error {
	text, err := c.choose(r, &src.Facts)
	if err != nil {
		return err
	}
	src.Facts.TakeTemplate(text, src.Tokenizer)
	return src.Facts.PackTemplate(ctx, c.Simplify, src.Tokenizer.Decode(src.Facts.Prefix, false))
}

// choose returns the template that the recipe selects.
func (c ChatTemplate) choose(r *Run, f *source.Facts) (string, error) {
	sec := r.Recipe.Stages["rewrite"]
	names := strings.Join(slices.Sorted(maps.Keys(f.Templates)), ", ")
	switch {
	case c.Path != "" && c.Text != "" || c.Name != "" && c.Path+c.Text != "":
		return "", sec.Errorf("template", "name, path and text exclude each other")
	case c.Text != "":
		return c.Text, nil
	case c.Path != "":
		b, err := os.ReadFile(r.Recipe.Resolve(c.Path))
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
			return "", sec.Errorf("template.name", "the checkpoint has no chat template %q, it has %s", c.Name, names)
		}
		return t, nil
	case f.ChatTemplate == "" && len(f.Templates) > 0:
		return "", fmt.Errorf("chat_template: none of %s is named %s: set rewrite.template.name: %w", names, source.DefaultTemplate, tensor.ErrUnsupported)
	}
	return f.ChatTemplate, nil
}

// takeRecorded applies the template that the recipe of a package selected to the facts of a source.
func takeRecorded(m *manifest.Manifest, src *source.Source) error {
	var w Rewrite
	if r := recipeOf(m); r == nil || r.Stages[w.String()].Decode(&w) != nil {
		return nil // the recipe is of another version of this program
	}
	f := &src.Facts
	f.Simplified = w.Template.Simplify
	if w.Template.Text != "" {
		f.TakeTemplate(w.Template.Text, src.Tokenizer)
	} else if t, ok := f.Templates[w.Template.Name]; ok {
		f.TakeTemplate(t, src.Tokenizer)
	} else if w.Template.Name != "" {
		return fmt.Errorf("the checkpoint has no chat template %q, which the package was made with: %w", w.Template.Name, tensor.ErrUnsupported)
	}
	return nil
}
