package syntax

// checker finds errors in a template that its grammar allows, and notes the filters and tests that it names and the
// special names that each macro reads.
type checker struct {
	template *Template
	line     int
	loop     int // depth of loops that break and continue may leave
	within   int // depth of loops altogether
}

func (c *checker) fail(format string, args ...any) {
	e := corrupt(c.line, format, args...)
	e.Kind = "TemplateAssertionError"
	panic(e)
}

func (c *checker) use(kind, name string, line int, soft bool) {
	c.line = line
	c.template.Uses = append(c.template.Uses, Use{kind, name, line, soft})
}

// visit checks a node; soft is set for what stands directly in an if.
func (c *checker) visit(node any, soft bool) {
	switch n := node.(type) {
	case *Filter:
		c.use("filter", n.Name, n.Line, soft)
	case *Test:
		c.use("test", n.Name, n.Line, soft)
	case *Conditional:
		soft = true
	case *If:
		soft = true
	case *For:
		c.line = n.Line
		c.within++
		c.assigned(n)
		c.visit(n.Iterable, soft)
		c.visitBody(n.Test, nil)
		c.loop++
		c.visitBody(nil, n.Body)
		c.loop--
		c.visitBody(nil, n.Otherwise)
		c.within--
		return
	case *Set:
		c.line = n.Line
		c.assigned(n)
	case *SetBlock:
		c.line = n.Line
		c.assigned(n)
		Children(n, func(x any) { c.visit(x, false) })
		return
	case *FilterBlock, *With:
		Children(n, func(x any) { c.visit(x, false) })
		return
	case *Macro:
		c.macro(n.Definition)
		return
	case *CallBlock:
		c.line = n.Line
		if n.Call != nil {
			c.visit(n.Call, soft)
		}
		c.macro(n.Caller)
		return
	case *Break:
		c.line = n.Line
		c.inLoop("break")
	case *Continue:
		c.line = n.Line
		c.inLoop("continue")
	}
	Children(node, func(x any) { c.visit(x, soft) })
}

// visitBody visits a scope.
func (c *checker) visitBody(test Expression, body []Statement) {
	if test != nil {
		c.visit(test, false)
	}
	for _, s := range body {
		c.visit(s, false)
	}
}

func (c *checker) inLoop(what string) {
	if c.loop == 0 {
		c.fail("%s outside of a loop", what)
	}
}

// assigned rejects assignments to "loop" anywhere in a loop. The targets of a with block are parameters.
func (c *checker) assigned(node any) {
	switch node.(type) {
	case *For, *Set, *SetBlock:
		stored(node, func(id string) {
			if id == "loop" && c.within > 0 {
				c.fail("can't assign to the special variable loop in a for loop")
			}
		})
	}
}

// macro checks a macro, which no break leaves, and notes which special names its body reads.
func (c *checker) macro(m *Definition) {
	loop := c.loop
	c.loop = 0
	Children(&Macro{Definition: m}, func(x any) { c.visit(x, false) })
	c.loop = loop
	free := map[string]bool{"caller": true, "kwargs": true, "varargs": true}
	for _, s := range m.Body {
		m.reads(s, free)
	}
	for i, parameter := range m.Parameters {
		switch parameter {
		case "caller":
			if m.Caller && i < len(m.Parameters)-len(m.Defaults) {
				c.fail(`the parameter "caller" needs a default`)
			}
			m.Caller = false
		case "kwargs":
			m.Kwargs = false
		case "varargs":
			m.Varargs = false
		}
	}
}

// reads notes the special names that are read before they are assigned; free holds those not assigned so far.
func (m *Definition) reads(node any, free map[string]bool) {
	assign := func(id string) { delete(free, id) }
	switch n := node.(type) {
	case *Name:
		m.Caller = m.Caller || n.ID == "caller" && free["caller"]
		m.Kwargs = m.Kwargs || n.ID == "kwargs" && free["kwargs"]
		m.Varargs = m.Varargs || n.ID == "varargs" && free["varargs"]
	case *Macro:
		for _, parameter := range n.Definition.Parameters {
			assign(parameter)
		}
	case *CallBlock:
		for _, parameter := range n.Caller.Parameters {
			assign(parameter)
		}
	case *For, *With, *Set, *SetBlock:
		stored(n, assign)
	}
	Children(node, func(x any) { m.reads(x, free) })
}
