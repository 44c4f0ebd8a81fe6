package syntax

// Expressions. Each is a pointer to one of these types; Line is where it stands, for messages.
type (
	Expression interface{}

	Constant struct{ Value any }
	Name     struct{ ID string }

	Tuple struct{ Items []Expression }
	List  struct{ Items []Expression }
	Dict  struct{ Keys, Values []Expression }

	Unary struct {
		Operator string // + - not
		X        Expression
		Line     int
	}
	Binary struct {
		Operator string // + - * / // % ** and or
		X, Y     Expression
		Line     int
	}
	Concat     struct{ Parts []Expression }
	Comparison struct {
		First Expression
		Rest  []Operand
		Line  int
	}
	Operand struct {
		Operator string // == != < <= > >= in, not in
		X        Expression
	}
	Conditional struct {
		Test, Yes, No Expression // No is nil if missing
		Line          int
	}
	Attribute struct {
		X    Expression
		Name string
		Line int
	}
	Item struct {
		X, Key Expression
		Line   int
	}
	Slice struct {
		X                 Expression
		Start, Stop, Step Expression // nil where missing
		Line              int
	}
	Call struct {
		Function  Expression
		Arguments Arguments
		Line      int
	}
	Filter struct {
		X         Expression // nil at the start of a filter block: the block's text
		Name      string
		Arguments Arguments
		Line      int
	}
	Test struct {
		X         Expression
		Name      string
		Arguments Arguments
		Line      int
	}

	// Arguments are those of a call; Star and StarStar are nil if missing.
	Arguments struct {
		Positional     []Expression
		Keyword        []Keyword
		Star, StarStar Expression
	}
	Keyword struct {
		Name string
		X    Expression
	}
)

// Statements, also pointers to one of these types. Hidden are the names that the scope of a statement hides: they have
// no value at its start, whatever outer scopes say. See symbols.
type (
	Statement interface{}

	Text  struct{ Text string }
	Print struct {
		X    Expression
		Line int
	}
	If struct {
		Branches  []Branch
		Otherwise []Statement
	}
	Branch struct {
		Test Expression
		Body []Statement
		Line int
	}
	For struct {
		Target          Expression
		Iterable        Expression
		Test            Expression // nil for none
		Recursive       bool
		Body, Otherwise []Statement
		Line            int

		Hidden, OtherwiseHidden []string
	}
	Set struct {
		Target, Value Expression
		Line          int
	}
	SetBlock struct {
		Target Expression
		Filter Expression // nil for none
		Body   []Statement
		Line   int
		Hidden []string
	}
	Macro struct {
		Definition *Definition
		Line       int
	}
	CallBlock struct {
		Caller *Definition
		Call   *Call // nil for {% generation %}
		Line   int
	}
	FilterBlock struct {
		Filter Expression
		Body   []Statement
		Line   int
		Hidden []string
	}
	With struct {
		Targets, Values []Expression
		Body            []Statement
		Line            int
		Hidden          []string
	}
	Break    struct{ Line int }
	Continue struct{ Line int }

	// NamespaceTarget is the target of {% set ns.attribute = x %}; other targets are names and tuples of targets.
	NamespaceTarget struct {
		ID, Attribute string
		Line          int
	}

	// Definition is a macro, or the body of a call block. The defaults belong to the last parameters.
	Definition struct {
		Name                    string
		Parameters              []string
		Defaults                []Expression
		Body                    []Statement
		Caller, Kwargs, Varargs bool // the body reads these without declaring them
		Hidden                  []string
	}
)

// each calls visit for each of xs that is not nil.
func each[T any](visit func(any), xs ...T) {
	for _, x := range xs {
		if any(x) != nil {
			visit(x)
		}
	}
}

func (a *Arguments) visit(visit func(any)) {
	each(visit, a.Positional...)
	for _, k := range a.Keyword {
		visit(k.X)
	}
	each(visit, a.Star, a.StarStar)
}

func (m *Definition) visit(visit func(any)) {
	each(visit, m.Defaults...)
	each(visit, m.Body...)
}

// Children calls visit for each direct part of a node that is an expression or a statement, in the order in which they
// are written. Parts of targets are left out.
func Children(node any, visit func(any)) {
	switch n := node.(type) {
	case *Tuple:
		each(visit, n.Items...)
	case *List:
		each(visit, n.Items...)
	case *Dict:
		for i := range n.Keys {
			each(visit, n.Keys[i], n.Values[i])
		}
	case *Unary:
		visit(n.X)
	case *Binary:
		each(visit, n.X, n.Y)
	case *Concat:
		each(visit, n.Parts...)
	case *Comparison:
		visit(n.First)
		for _, o := range n.Rest {
			visit(o.X)
		}
	case *Conditional:
		each(visit, n.Test, n.Yes, n.No)
	case *Attribute:
		visit(n.X)
	case *Item:
		each(visit, n.X, n.Key)
	case *Slice:
		each(visit, n.X, n.Start, n.Stop, n.Step)
	case *Call:
		visit(n.Function)
		n.Arguments.visit(visit)
	case *Filter:
		each(visit, n.X)
		n.Arguments.visit(visit)
	case *Test:
		visit(n.X)
		n.Arguments.visit(visit)
	case *Print:
		visit(n.X)
	case *If:
		for _, b := range n.Branches {
			visit(b.Test)
			each(visit, b.Body...)
		}
		each(visit, n.Otherwise...)
	case *For:
		each(visit, n.Iterable, n.Test)
		each(visit, n.Body...)
		each(visit, n.Otherwise...)
	case *Set:
		visit(n.Value)
	case *SetBlock:
		each(visit, n.Filter)
		each(visit, n.Body...)
	case *Macro:
		n.Definition.visit(visit)
	case *CallBlock:
		if n.Call != nil {
			visit(n.Call)
		}
		n.Caller.visit(visit)
	case *FilterBlock:
		visit(n.Filter)
		each(visit, n.Body...)
	case *With:
		each(visit, n.Values...)
		each(visit, n.Body...)
	}
}

// stored calls visit for each name that a statement or target assigns.
func stored(node any, visit func(string)) {
	switch n := node.(type) {
	case *Name:
		visit(n.ID)
	case *Tuple:
		for _, x := range n.Items {
			stored(x, visit)
		}
	case *For:
		stored(n.Target, visit)
	case *Set:
		stored(n.Target, visit)
	case *SetBlock:
		stored(n.Target, visit)
	case *With:
		for _, t := range n.Targets {
			stored(t, visit)
		}
	case *Macro:
		visit(n.Definition.Name)
	}
}
