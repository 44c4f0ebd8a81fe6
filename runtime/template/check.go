package template

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// checker finds what is wrong with a template before it is rendered, and notes which of the special names a macro
// reads. soft is whether the direct surroundings are an if: there the reference looks up filters only when they run.
type checker struct {
	line   int
	loop   int // depth of loops that break and continue may leave
	within int // depth of loops altogether
	errs   error
}

func (c *checker) fail(sentinel error, format string, args ...any) {
	if c.errs == nil {
		c.errs = &Error{Line: c.line, Kind: "TemplateAssertionError", Message: fmt.Sprintf(format, args...), err: sentinel}
	}
}

func (c *checker) visit(node any, soft bool) {
	switch n := node.(type) {
	case *filter:
		c.line = n.line
		c.known("filter", n.name, filters[n.name] != nil, missingFilters[n.name], soft)
	case *test:
		c.line = n.line
		c.known("test", n.name, tests[n.name] != nil, false, soft)
	case *conditional:
		soft = true
	case *ifStatement:
		soft = true
	case *forStatement:
		c.line = n.line
		c.within++
		c.assigned(n)
		c.visit(n.iterable, soft)
		c.visitBody(n.test, nil)
		c.loop++
		c.visitBody(nil, n.body)
		c.loop--
		c.visitBody(nil, n.otherwise)
		c.within--
		return
	case *setStatement:
		c.line = n.line
		c.assigned(n)
	case *setBlock:
		c.line = n.line
		c.assigned(n)
		children(n, func(x any) { c.visit(x, false) })
		return
	case *filterBlock, *withStatement:
		children(n, func(x any) { c.visit(x, false) })
		return
	case *macroStatement:
		c.macro(n.macro)
		return
	case *callBlock:
		c.line = n.line
		if n.call != nil {
			c.visit(n.call, soft)
		}
		c.macro(n.caller)
		return
	case *breakStatement:
		c.line = n.line
		c.inLoop("break")
	case *continueStatement:
		c.line = n.line
		c.inLoop("continue")
	}
	children(node, func(x any) { c.visit(x, soft) })
}

// visitBody visits a scope of its own.
func (c *checker) visitBody(test expression, body []statement) {
	if test != nil {
		c.visit(test, false)
	}
	for _, s := range body {
		c.visit(s, false)
	}
}

func (c *checker) inLoop(what string) {
	if c.loop == 0 {
		c.fail(tensor.ErrCorrupt, "%s outside of a loop", what)
	}
}

func (c *checker) known(what, name string, known, missing, soft bool) {
	switch {
	case missing:
		c.fail(tensor.ErrUnsupported, "the %s %q is not supported", what, name)
	case !known && !soft:
		c.fail(tensor.ErrCorrupt, "no %s named %q", what, name)
	}
}

// assigned refuses assignments to "loop" anywhere in a loop. The targets of a with block are parameters.
func (c *checker) assigned(node any) {
	switch node.(type) {
	case *forStatement, *setStatement, *setBlock:
		stored(node, func(id string) {
			if id == "loop" && c.within > 0 {
				c.fail(tensor.ErrCorrupt, "can't assign to the special variable loop in a for loop")
			}
		})
	}
}

// macro checks a macro, which no break leaves, and notes the special names that its body reads.
func (c *checker) macro(m *macroDefinition) {
	loop := c.loop
	c.loop = 0
	children(&macroStatement{macro: m}, func(x any) { c.visit(x, false) })
	c.loop = loop
	free := map[string]bool{"caller": true, "kwargs": true, "varargs": true}
	for _, s := range m.body {
		m.reads(s, free)
	}
	for i, parameter := range m.parameters {
		switch parameter {
		case "caller":
			if m.caller && i < len(m.parameters)-len(m.defaults) {
				c.fail(tensor.ErrCorrupt, `the parameter "caller" needs a default`)
			}
			m.caller = false
		case "kwargs":
			m.kwargs = false
		case "varargs":
			m.varargs = false
		}
	}
}

// reads notes the names that are read before they are assigned; free holds those that are not assigned so far.
func (m *macroDefinition) reads(node any, free map[string]bool) {
	switch n := node.(type) {
	case *name:
		m.caller = m.caller || n.id == "caller" && free["caller"]
		m.kwargs = m.kwargs || n.id == "kwargs" && free["kwargs"]
		m.varargs = m.varargs || n.id == "varargs" && free["varargs"]
		return
	case *forStatement:
		stored(n, func(id string) { delete(free, id) })
	case *macroStatement:
		for _, parameter := range n.macro.parameters {
			delete(free, parameter)
		}
		children(node, func(x any) { m.reads(x, free) })
		return
	case *callBlock:
		for _, parameter := range n.caller.parameters {
			delete(free, parameter)
		}
	case *withStatement:
		stored(n, func(id string) { delete(free, id) })
	case *setStatement:
		stored(n, func(id string) { delete(free, id) })
	case *setBlock:
		stored(n, func(id string) { delete(free, id) })
	case *tupleLiteral:
	}
	children(node, func(x any) { m.reads(x, free) })
}
