package template

// Expressions. Every one is a pointer to one of these types; line is where it stands, for messages.
type (
	expression interface{}

	constant struct{ value any }
	name     struct{ id string }

	tupleLiteral struct{ items []expression }
	listLiteral  struct{ items []expression }
	dictLiteral  struct{ keys, values []expression }

	unary struct {
		operator string // + - not
		x        expression
		line     int
	}
	binary struct {
		operator string // + - * / // % ** and or
		x, y     expression
		line     int
	}
	concat     struct{ parts []expression }
	comparison struct {
		first expression
		rest  []operand
		line  int
	}
	operand struct {
		operator string // == != < <= > >= in, not in
		x        expression
	}
	conditional struct {
		test, yes, no expression // no is nil when it is missing
		line          int
	}
	attribute struct {
		x    expression
		name string
		line int
	}
	item struct {
		x, key expression
		line   int
	}
	slice struct {
		x                 expression
		start, stop, step expression // nil where missing
		line              int
	}
	call struct {
		function  expression
		arguments arguments
		line      int
	}
	filter struct {
		x         expression // nil at the start of a filter block: the block's text
		name      string
		arguments arguments
		line      int
	}
	test struct {
		x         expression
		name      string
		arguments arguments
		line      int
	}

	// arguments of a call; star and starStar are nil where missing.
	arguments struct {
		positional     []expression
		keyword        []keywordArgument
		star, starStar expression
	}
	keywordArgument struct {
		name string
		x    expression
	}
)

// Statements, pointers as well.
type (
	statement interface{}

	textStatement  struct{ text string }
	printStatement struct {
		x    expression
		line int
	}
	ifStatement struct {
		branches  []branch
		otherwise []statement
	}
	branch struct {
		test expression
		body []statement
		line int
	}
	forStatement struct {
		target          expression
		iterable        expression
		test            expression // nil for none
		recursive       bool
		body, otherwise []statement
		line            int

		hidden, otherwiseHidden []string // of each scope, see symbols
	}
	setStatement struct {
		target, value expression
		line          int
	}
	setBlock struct {
		target expression
		filter expression // nil for none
		body   []statement
		line   int
		hidden []string
	}
	macroStatement struct {
		macro *macroDefinition
		line  int
	}
	callBlock struct {
		caller *macroDefinition
		call   *call // nil for {% generation %}
		line   int
	}
	filterBlock struct {
		filter expression
		body   []statement
		line   int
		hidden []string
	}
	withStatement struct {
		targets, values []expression
		body            []statement
		line            int
		hidden          []string
	}
	breakStatement    struct{ line int }
	continueStatement struct{ line int }

	// namespaceTarget is what {% set ns.attribute = x %} assigns to; other targets are names and tuples of targets.
	namespaceTarget struct {
		id, attribute string
		line          int
	}

	// macroDefinition is a macro, or the body of a call block. The last defaults belong to the last parameters.
	macroDefinition struct {
		name                    string
		parameters              []string
		defaults                []expression
		body                    []statement
		caller, kwargs, varargs bool // the body reads these without declaring them
		hidden                  []string
	}
)

// children calls visit for each direct part of a node that is an expression or a statement, in the order in which
// they are written. The parts of a target are visited as parts of its owner.
func children(node any, visit func(any)) {
	one := func(x any) {
		if x != nil {
			visit(x)
		}
	}
	expressions := func(xs []expression) {
		for _, x := range xs {
			one(x)
		}
	}
	statements := func(xs []statement) {
		for _, x := range xs {
			one(x)
		}
	}
	args := func(a *arguments) {
		expressions(a.positional)
		for _, k := range a.keyword {
			one(k.x)
		}
		one(a.star)
		one(a.starStar)
	}
	macro := func(m *macroDefinition) {
		expressions(m.defaults)
		statements(m.body)
	}
	switch n := node.(type) {
	case *tupleLiteral:
		expressions(n.items)
	case *listLiteral:
		expressions(n.items)
	case *dictLiteral:
		for i := range n.keys {
			one(n.keys[i])
			one(n.values[i])
		}
	case *unary:
		one(n.x)
	case *binary:
		one(n.x)
		one(n.y)
	case *concat:
		expressions(n.parts)
	case *comparison:
		one(n.first)
		for _, o := range n.rest {
			one(o.x)
		}
	case *conditional:
		one(n.test)
		one(n.yes)
		one(n.no)
	case *attribute:
		one(n.x)
	case *item:
		one(n.x)
		one(n.key)
	case *slice:
		one(n.x)
		one(n.start)
		one(n.stop)
		one(n.step)
	case *call:
		one(n.function)
		args(&n.arguments)
	case *filter:
		one(n.x)
		args(&n.arguments)
	case *test:
		one(n.x)
		args(&n.arguments)
	case *printStatement:
		one(n.x)
	case *ifStatement:
		for _, b := range n.branches {
			one(b.test)
			statements(b.body)
		}
		statements(n.otherwise)
	case *forStatement:
		one(n.iterable)
		one(n.test)
		statements(n.body)
		statements(n.otherwise)
	case *setStatement:
		one(n.value)
	case *setBlock:
		one(n.filter)
		statements(n.body)
	case *macroStatement:
		macro(n.macro)
	case *callBlock:
		if n.call != nil {
			one(n.call)
		}
		macro(n.caller)
	case *filterBlock:
		one(n.filter)
		statements(n.body)
	case *withStatement:
		expressions(n.values)
		statements(n.body)
	}
}

// stored calls visit for each name that a statement or target assigns.
func stored(node any, visit func(string)) {
	switch n := node.(type) {
	case *name:
		visit(n.id)
	case *tupleLiteral:
		for _, x := range n.items {
			stored(x, visit)
		}
	case *forStatement:
		stored(n.target, visit)
	case *setStatement:
		stored(n.target, visit)
	case *setBlock:
		stored(n.target, visit)
	case *withStatement:
		for _, t := range n.targets {
			stored(t, visit)
		}
	case *macroStatement:
		visit(n.macro.name)
	}
}
