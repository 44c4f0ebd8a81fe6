package template

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// ErrLimit says that a template asked for more than [Limits] allow.
var ErrLimit = errors.New("limit of the template")

// Limits bound what rendering a template may cost. A field that is 0 has its default.
type Limits struct {
	Steps  int // evaluations, and work on long texts and lists; default 20 million, a few seconds
	Output int // bytes of the result and of every text on the way; default 16 MiB
	Depth  int // macros and recursive loops within each other; default 200

	// Now is the time that strftime_now formats, in its own time zone; zero is the present.
	Now time.Time
}

func (l Limits) withDefaults() Limits {
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

// Error is what is wrong with a template, or what it did wrong.
type Error struct {
	Name    string // of the template
	Line    int    // counted from 1
	Kind    string // Python's name of such an error: TypeError, UndefinedError; TemplateError for raise_exception
	Message string
	err     error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Message)
	if e.err != nil {
		s += ": " + e.err.Error()
	}
	return s
}

// Unwrap is tensor.ErrCorrupt for wrong syntax, tensor.ErrUnsupported for what this package lacks, ErrLimit, or nil
// for an error that a template made while it was rendered.
func (e *Error) Unwrap() error { return e.err }

// Template is a parsed template. It is not changed by rendering, so several goroutines may render one.
type Template struct {
	name   string
	body   []statement
	hidden []string // names, see symbols
}

// Parse reads a template; the name is for messages. The error is a tensor.ErrUnsupported for a construct that jinja2
// has and this package lacks, and a tensor.ErrCorrupt for what jinja2 refuses too.
func Parse(name, source string) (*Template, error) {
	t := &Template{name: name}
	var err error
	if t.body, t.hidden, err = parse(source); err != nil {
		return nil, named(err, name)
	}
	return t, nil
}

func parse(source string) (body []statement, hidden []string, err error) {
	if len(source) > maxSource {
		return nil, nil, &Error{Line: 1, Kind: "TemplateSyntaxError", Message: fmt.Sprintf("%d bytes are too many", len(source)), err: tensor.ErrUnsupported}
	}
	if !utf8.ValidString(source) {
		return nil, nil, &Error{Line: 1, Kind: "TemplateSyntaxError", Message: "not UTF-8", err: tensor.ErrCorrupt}
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, nil, err
	}
	p := &parser{tokens: tokens}
	if body, err = p.parse(); err != nil {
		return nil, nil, err
	}
	var c checker
	c.visitBody(nil, body)
	if c.errs != nil {
		return nil, nil, c.errs
	}
	hidden, err = markHidden(body)
	return body, hidden, err
}

// named gives an error its template's name.
func named(err error, name string) error {
	var e *Error
	if errors.As(err, &e) && e.Name == "" {
		e.Name = name
	}
	return err
}

// Render fills the template in. Values are nil, bool, any integer type that fits int64, float32, float64, string,
// json.Number, []any, []string, *[Object], map[string]any, whose keys are taken in sorted order, and slices of the
// last two; other types are refused.
func (t *Template) Render(ctx context.Context, values map[string]any, limits Limits) (string, error) {
	r := &renderer{ctx: ctx, limits: limits.withDefaults(), line: 1}
	root := &scope{parent: globals}
	for k, v := range values {
		w, err := r.convert(v, 0)
		if err != nil {
			return "", fmt.Errorf("%s: value %q: %w", t.name, k, err)
		}
		root.set(k, w)
	}
	var out output
	if err := r.run(t.body, newScope(root, t.hidden), &out); err != nil {
		if _, ok := errors.AsType[*Error](err); !ok {
			return "", fmt.Errorf("%s:%d: %w", t.name, r.line, err)
		}
		return "", named(err, t.name)
	}
	return out.String(), nil
}
