package template

import (
	"fmt"
	"slices"
)

// Construct is a part of a template that the LLM engine of MNN renders differently from jinja2, or may.
type Construct struct {
	Line   int    // counted from 1; of what is around it where it has none of its own
	Name   string // what it is: filter default, method items, operator *
	Effect string // what the engine does there
}

func (c Construct) String() string { return fmt.Sprintf("line %d: %s: %s", c.Line, c.Name, c.Effect) }

// EngineConstructs lists what the engine's interpreter of templates does not know or does differently, in the order of
// the template. It explains a difference; whether there is one shows only when both render: a construct may be in a
// branch that is never taken, and what depends on values (a text that is indexed, objects that are compared) or
// on white space is not listed. docs/engine-template.md has the whole list, and the package engine below this one
// renders as the engine does.
func (t *Template) EngineConstructs() []Construct {
	w := &engineWalk{macros: map[string]bool{}}
	for _, s := range t.body {
		w.findMacros(s)
	}
	for _, s := range t.body {
		w.visit(s)
	}
	slices.SortStableFunc(w.list, func(a, b Construct) int { return a.Line - b.Line })
	return slices.CompactFunc(w.list, func(a, b Construct) bool { return a == b })
}

// What the engine knows.
var (
	engineFilters   = []string{"tojson", "string", "capitalize", "length", "trim", "items", "lower", "upper", "map"}
	engineTests     = []string{"defined", "undefined", "none", "boolean", "string", "number", "sequence", "iterable", "mapping", "true", "false"}
	engineFunctions = []string{"range", "namespace", "strftime_now"}
	engineLoop      = []string{"index0", "index", "first", "last", "length"}
	engineOperators = []string{"+", "-", "and", "or"}
	// engineMethods are those of texts, with the most arguments that count.
	engineMethods = map[string]int{"startswith": 1, "endswith": 1, "split": 1, "lstrip": 1, "rstrip": 1, "strip": 1, "replace": 2}
)

// engineWalk walks a tree. condition says that only the truth of the expression counts.
type engineWalk struct {
	list      []Construct
	line      int
	macros    map[string]bool
	condition bool
}

func (w *engineWalk) add(name, effect string) {
	w.list = append(w.list, Construct{max(w.line, 1), name, effect})
}

func (w *engineWalk) findMacros(node any) {
	if m, ok := node.(*macroStatement); ok {
		w.macros[m.macro.name] = true
	}
	children(node, w.findMacros)
}

func (w *engineWalk) visit(node any) {
	condition := w.condition
	w.condition = false
	defer func() { w.condition = condition }()
	switch n := node.(type) {
	case *printStatement:
		w.line = n.line
	case *ifStatement:
		for _, b := range n.branches {
			w.line = b.line
			w.truth(b.test)
			w.body(b.body)
		}
		w.body(n.otherwise)
		return
	case *forStatement:
		w.loop(n)
		return
	case *setStatement:
		w.line = n.line
		if _, ok := n.target.(*tupleLiteral); ok {
			w.add("set of several names", "the first becomes an empty text, the others do not exist")
		}
	case *setBlock:
		w.line = n.line
		w.add("set block", "the name becomes an empty text, and the body is printed")
	case *macroStatement:
		w.line = n.line
		if len(n.macro.defaults) > 0 {
			w.add("macro "+n.macro.name+": default values", "they are dropped: a missing argument is a variable of the caller, or undefined")
		}
	case *callBlock:
		w.line = n.line
		if n.call != nil {
			w.add("call block", "the call is skipped, and the body is printed")
		}
	case *filterBlock:
		w.line = n.line
		w.add("filter block", "the filter is not applied")
		return
	case *withStatement:
		w.line = n.line
		w.add("with block", "the variables are not set")
	case *breakStatement:
		w.line = n.line
		w.add("break", "the loop goes on")
	case *continueStatement:
		w.line = n.line
		w.add("continue", "the rest of the body is rendered")
	default:
		w.expression(node, condition)
		return
	}
	children(node, w.visit)
}

func (w *engineWalk) body(body []statement) {
	for _, s := range body {
		w.visit(s)
	}
}

// truth visits an expression of which only the truth counts.
func (w *engineWalk) truth(x expression) {
	if x != nil {
		w.condition = true
		w.visit(x)
		w.condition = false
	}
}

func (w *engineWalk) loop(n *forStatement) {
	w.line = n.line
	if n.recursive {
		w.add("recursive loop", "loop() gives an empty text")
	}
	if t, ok := n.target.(*tupleLiteral); ok && slices.ContainsFunc(t.items, func(x expression) bool { _, nested := x.(*tupleLiteral); return nested }) {
		w.add("for with nested names", "the loop is not read right")
	}
	if c, ok := n.iterable.(*conditional); ok && c.no != nil {
		w.add("for over a condition", "without brackets the condition is taken for that of the elements")
	}
	w.visit(n.iterable)
	w.truth(n.test)
	w.body(n.body)
	if len(n.otherwise) > 0 {
		w.add("else of a loop", "it is rendered with every element, and not for an empty list")
	}
	w.body(n.otherwise)
}

func (w *engineWalk) expression(node any, condition bool) {
	switch n := node.(type) {
	case *constant:
		if _, ok := n.value.(float64); ok {
			w.add("number with a fraction", "what is behind the point is not read")
		}
	case *tupleLiteral:
		w.add("tuple", "only the first element is read")
	case *dictLiteral:
		for _, k := range n.keys {
			if c, ok := k.(*constant); ok {
				if _, ok := c.value.(string); !ok {
					w.add("key that is no text", "it becomes an empty text")
				}
			}
		}
	case *unary:
		w.line = n.line
		if n.operator == "not" {
			w.truth(n.x)
			return
		}
	case *binary:
		w.line = n.line
		if !slices.Contains(engineOperators, n.operator) {
			w.add("operator "+n.operator, "the expression ends before it, the rest is skipped")
		}
		if n.operator == "and" || n.operator == "or" {
			if !condition {
				w.add("value of "+n.operator, "the result is true or false, not one of the two values")
			}
			w.truth(n.x)
			w.truth(n.y)
			return
		}
	case *comparison:
		w.line = n.line
		if len(n.rest) > 1 {
			w.add("chain of comparisons", "the result of the first is compared with the next value")
		}
	case *conditional:
		w.line = n.line
		if n.no == nil {
			w.add("condition without else", "the value is taken whatever the condition is")
		}
		w.truth(n.test)
		w.visit(n.yes)
		if n.no != nil {
			w.visit(n.no)
		}
		return
	case *attribute:
		w.line = n.line
		w.base(n.x, "attribute "+n.name)
		if id, ok := n.x.(*name); ok && id.id == "loop" && !slices.Contains(engineLoop, n.name) {
			w.add("loop."+n.name, "undefined")
		}
	case *item:
		w.line = n.line
		w.base(n.x, "index")
	case *slice:
		w.line = n.line
		w.base(n.x, "slice")
	case *call:
		w.call(n)
		return
	case *filter:
		w.line = n.line
		w.filter(n)
	case *test:
		w.line = n.line
		if !slices.Contains(engineTests, n.name) {
			w.add("test "+n.name, "fails for every value")
		}
		if a := n.arguments; len(a.positional)+len(a.keyword) > 0 {
			w.add("arguments of the test "+n.name, "they are not read")
		}
	}
	children(node, w.visit)
}

// base is what stands before an attribute, an index or a call.
func (w *engineWalk) base(x expression, what string) {
	switch x.(type) {
	case *name, *attribute, *item, *slice, *call:
	default:
		w.add(what+" of what is no name", "it is skipped: only names have attributes, indexes and methods")
	}
}

func (w *engineWalk) call(n *call) {
	w.line = n.line
	a := n.arguments
	if a.star != nil || a.starStar != nil {
		w.add("argument with *", "the arguments end before it")
	}
	switch f := n.function.(type) {
	case *name:
		switch {
		case f.id == "loop":
		case f.id == "namespace" && len(a.positional) > 0:
			w.add("namespace of a dict", "only keyword arguments count")
		case !slices.Contains(engineFunctions, f.id) && !w.macros[f.id]:
			w.add("function "+f.id, "an empty text")
		}
	case *attribute:
		w.base(f.x, "method "+f.name)
		if id, ok := f.x.(*name); ok && id.id == "loop" {
			w.add("loop."+f.name, "an empty text")
			break
		}
		most, known := engineMethods[f.name]
		switch {
		case !known:
			w.add("method "+f.name, "an empty text")
		case f.name == "split" && len(a.positional) == 0:
			w.add("method split without separator", "splits at every single blank")
		case len(a.positional) > most:
			w.add("method "+f.name, fmt.Sprintf("only %d arguments count", most))
		}
		if len(a.keyword) > 0 {
			w.add("keyword argument of the method "+f.name, "it is not read")
		}
		w.visit(f.x)
	default:
		w.add("call of what is no name", "it is skipped")
		w.visit(f)
	}
	for _, x := range a.positional {
		w.visit(x)
	}
	for _, k := range a.keyword {
		w.visit(k.x)
	}
}

func (w *engineWalk) filter(n *filter) {
	a := n.arguments
	switch {
	case !slices.Contains(engineFilters, n.name):
		w.add("filter "+n.name, "gives its input")
	case n.name == "tojson":
		w.add("filter tojson", "the keys of an object are sorted, type, function, name, description and parameters first")
		if len(a.positional) > 0 || slices.ContainsFunc(a.keyword, func(k keywordArgument) bool { return k.name != "indent" && k.name != "ensure_ascii" }) {
			w.add("arguments of the filter tojson", "only indent counts, by keyword")
		}
	case n.name == "map":
		if len(a.positional) > 0 {
			w.add("filter map with a filter", "takes its name for that of an attribute")
		}
		if slices.ContainsFunc(a.keyword, func(k keywordArgument) bool { return k.name != "attribute" }) {
			w.add("arguments of the filter map", "only attribute counts; a missing one is null")
		}
	case len(a.positional)+len(a.keyword) > 0:
		w.add("arguments of the filter "+n.name, "they are not read")
	}
}
