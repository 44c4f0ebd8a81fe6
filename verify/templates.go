package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/conversations"
	"github.com/llmexport/llmexport/runtime/template/engine"
)

// ChatTemplates are a source's chat template and the one that a package carries for it.
type ChatTemplates struct {
	Source, Packaged string
	// BOS and EOS are bos_token and eos_token of the source's template. The packaged one gets EOS only, because
	// Prefix, the text of the ids before every prompt, holds the start.
	BOS, EOS, Prefix string
}

// TemplateFindings is the result of comparing two templates on conversations.
type TemplateFindings struct {
	// Equal counts conversations for which the engine renders the same text. Ordered lists those of them whose objects, such
	// as tools, have keys in another order than the engine's, so that only the texts for ordered keys are the same.
	Equal   int
	Ordered []string
	// Refused are conversations that the source's template rejects, and the engine, which has no errors, does not.
	Refused []string
	// Different are conversations for which the engine renders another text, or none.
	Different []TemplateDifference
	// Unprefixed counts conversations to which the engine adds Prefix, and the source's template does not.
	Unprefixed int
}

// TemplateDifference is one conversation, with the texts after the common beginning.
type TemplateDifference struct {
	Conversation, Want, Got string
}

func (d TemplateDifference) String() string {
	return fmt.Sprintf("%s: the engine writes %q where the source has %q", d.Conversation, clip(d.Got), clip(d.Want))
}

// comparedAt is the time at which templates that show the date are compared.
var comparedAt = time.Date(2026, 3, 5, 7, 8, 9, 0, time.UTC)

// CompareTemplates renders conversations with the source's template as transformers does, and with the packaged one as
// the engine does. It returns an error if the source's template cannot be parsed or ctx ends.
func CompareTemplates(ctx context.Context, c ChatTemplates, all []conversations.Conversation) (*TemplateFindings, error) {
	source, err := template.Parse("chat_template", c.Source)
	if err != nil {
		return nil, err
	}
	limits := template.Limits{Now: comparedAt}
	packaged, parseErr := engine.Parse(c.Packaged)
	f := &TemplateFindings{}
	for _, conversation := range all {
		ordered, changed := EngineOrder(conversation)
		want, err := ordered.Render(conversations.With(ctx, source, c.BOS, c.EOS, limits))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			if errors.Is(err, template.ErrLimit) {
				return nil, err
			}
			f.Refused = append(f.Refused, conversation.Name)
			continue
		}
		got, err := "", parseErr
		if err == nil {
			got, err = ordered.Render(packaged.Renderer(ctx, "", c.EOS, limits))
		}
		if err != nil {
			f.Different = append(f.Different, TemplateDifference{conversation.Name, want, err.Error()})
			continue
		}
		rest, ok := strings.CutPrefix(want, c.Prefix)
		if !ok {
			rest = want
			f.Unprefixed++
		}
		if rest != got {
			at := 0
			for at < min(len(rest), len(got)) && rest[at] == got[at] {
				at++
			}
			f.Different = append(f.Different, TemplateDifference{conversation.Name, rest[at:], got[at:]})
			continue
		}
		f.Equal++
		if changed {
			f.Ordered = append(f.Ordered, conversation.Name)
		}
	}
	return f, nil
}

// engineKeys are the keys that the engine's tojson writes first, in this order; others follow sorted by their
// bytes.
var engineKeys = []string{"type", "function", "name", "description", "parameters", "properties", "required", "enum"}

// EngineOrder returns the conversation with the keys of objects in the engine's order, and reports whether that changes any
// object within a message or a tool: templates pick the fields of a message one by one.
func EngineOrder(c conversations.Conversation) (conversations.Conversation, bool) {
	changed := false
	var order func(v any, inside bool) any
	order = func(v any, inside bool) any {
		switch v := v.(type) {
		case []any:
			list := make([]any, len(v))
			for i := range v {
				list[i] = order(v[i], true)
			}
			return list
		case *template.Object:
			var keys []string
			for k := range v.All() {
				keys = append(keys, k)
			}
			sorted := slices.SortedFunc(slices.Values(keys), func(a, b string) int {
				return cmp.Or(cmp.Compare(engineRank(a), engineRank(b)), cmp.Compare(a, b))
			})
			changed = changed || inside && !slices.Equal(keys, sorted)
			o := template.NewObject()
			for _, k := range sorted {
				w, _ := v.Get(k)
				o.Set(k, order(w, true))
			}
			return o
		}
		return v
	}
	messages := make([]*template.Object, len(c.Messages))
	for i, m := range c.Messages {
		messages[i] = order(m, false).(*template.Object)
	}
	c.Messages = messages
	if c.Tools != nil {
		c.Tools = order(c.Tools, true).([]any)
	}
	return c, changed
}

func engineRank(key string) int {
	if i := slices.Index(engineKeys, key); i >= 0 {
		return i
	}
	return len(engineKeys)
}
