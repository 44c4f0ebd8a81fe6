// Package syntax reads chat templates, which are written in Jinja. [Parse] makes a tree of expressions and statements,
// and [Source] writes one. The grammar and the rules of scopes are those of jinja2 3.1.6 with trim_blocks and
// lstrip_blocks, the tags break, continue and generation.
package syntax

import (
	"fmt"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Error is an error in a template, or one that a template made while it was rendered.
type Error struct {
	Name    string // of the template
	Line    int    // counted from 1
	Kind    string // Python's name of the error: TypeError, UndefinedError; TemplateError for raise_exception
	Message string
	Err     error // see Unwrap
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Message)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns tensor.ErrCorrupt for wrong syntax, tensor.ErrUnsupported for constructs that are not supported,
// template.ErrLimit, or nil for an error that the template itself made.
func (e *Error) Unwrap() error { return e.Err }

// corrupt is a syntax error. The lexer and the parser panic with their errors, and Parse recovers them.
func corrupt(line int, format string, args ...any) *Error {
	return &Error{Line: line, Kind: "TemplateSyntaxError", Message: fmt.Sprintf(format, args...), Err: tensor.ErrCorrupt}
}

func unsupported(line int, format string, args ...any) *Error {
	return &Error{Line: line, Kind: "TemplateSyntaxError", Message: fmt.Sprintf(format, args...), Err: tensor.ErrUnsupported}
}

// Template is a parsed template.
type Template struct {
	Name   string
	Body   []Statement
	Hidden []string // names that the outermost scope hides, see For
	Uses   []Use
}

// Use is a filter or test that a template names.
type Use struct {
	Kind, Name string // Kind is filter or test
	Line       int
	// Soft uses stand directly in an if: jinja2 looks them up only when they run.
	Soft bool
}

// Parse parses a template; name appears in errors. The error, an *[Error], wraps tensor.ErrUnsupported for a construct
// of jinja2 that is not supported, and tensor.ErrCorrupt for one that jinja2 rejects too.
func Parse(name, source string) (t *Template, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Error:
			e.Name = name
			t, err = nil, e
		default:
			panic(e)
		}
	}()
	if len(source) > maxSource {
		panic(unsupported(1, "a template of %d bytes", len(source)))
	}
	if !utf8.ValidString(source) {
		panic(corrupt(1, "not UTF-8"))
	}
	t = &Template{Name: name}
	p := &parser{tokens: lex(source)}
	t.Body, _ = p.statements()
	c := checker{template: t}
	for _, s := range t.Body {
		c.visit(s, false)
	}
	markHidden(t)
	return t, nil
}
