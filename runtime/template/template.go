package template

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmexport/llmexport/runtime/template/syntax"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// ErrLimit is the error of a template that exceeds its [Limits].
var ErrLimit = errors.New("limit of the template")

// Limits bound the cost of rendering a template. Zero fields have their defaults.
type Limits struct {
	Steps  int // evaluations, and work on long texts and lists; default 20 million, a few seconds
	Output int // bytes of the result and of every intermediate text; default 16 MiB
	Depth  int // nested calls of macros and recursive loops; default 200

	// Now is the time that strftime_now formats, in its own time zone; zero is the present.
	Now time.Time
}

// WithDefaults returns l with defaults for zero fields.
func (l Limits) WithDefaults() Limits {
	if l.Steps <= 0 {
		l.Steps = 20_000_000
	}
	if l.Output <= 0 {
		l.Output = 16 << 20
	}
	if l.Depth <= 0 {
		l.Depth = 200
	}
	if l.Now.IsZero() {
		l.Now = time.Now()
	}
	return l
}

// Error is an error in a template, or one that a template made while it was rendered.
type Error = syntax.Error

// Template is a parsed template. Rendering does not change it, so several goroutines may render one.
type Template struct{ tree *syntax.Template }

// Parse parses a template; name appears in errors. The error is a tensor.ErrUnsupported for a feature of jinja2 that
// this package lacks, and a tensor.ErrCorrupt for a template that jinja2 rejects too.
func Parse(name, source string) (*Template, error) {
	tree, err := syntax.Parse(name, source)
	if err != nil {
		return nil, err
	}
	for _, u := range tree.Uses {
		e := &Error{Name: name, Line: u.Line, Kind: "TemplateAssertionError"}
		if u.Kind == "filter" && missingFilters[u.Name] {
			e.Message, e.Err = fmt.Sprintf("the filter %q is not supported", u.Name), tensor.ErrUnsupported
			return nil, e
		}
		if known := u.Kind == "filter" && filters[u.Name] != nil || u.Kind == "test" && tests[u.Name] != nil; !known && !u.Soft {
			e.Message, e.Err = fmt.Sprintf("no %s named %q", u.Kind, u.Name), tensor.ErrCorrupt
			return nil, e
		}
	}
	return &Template{tree}, nil
}

// Syntax returns the tree of the template, which must not be changed.
func (t *Template) Syntax() *syntax.Template { return t.tree }

// Render renders the template. Values are nil, bool, any integer type that fits int64, float32, float64, string,
// json.Number, [Message], *[Object], map[string]any, whose keys are taken in sorted order, and slices; other types are
// rejected.
func (t *Template) Render(ctx context.Context, values map[string]any, limits Limits) (string, error) {
	r := newRenderer(ctx, limits)
	root := &scope{parent: globals}
	for k, v := range values {
		w, err := r.value(v)
		if err != nil {
			return "", fmt.Errorf("%s: value %q: %w", t.tree.Name, k, err)
		}
		root.set(k, w)
	}
	text, err := r.render(t.tree, root)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Name = t.tree.Name
		return "", e
	}
	if err != nil {
		return "", fmt.Errorf("%s:%d: %w", t.tree.Name, r.line, err)
	}
	return text, nil
}
