package engine

// Expressions, pointers to one of these types.
type (
	expression interface{}

	literal   struct{ value *value }
	variable  struct{ name string }
	attribute struct {
		x    expression
		name string
	}
	item  struct{ x, key expression }
	slice struct{ start, stop, step expression } // as the key of an item; nil where missing
	call  struct {
		name      string
		arguments []argument
	}
	method struct {
		x         expression
		name      string
		arguments []expression
	}
	filter struct {
		x         expression
		name      string
		arguments []argument
	}
	test struct {
		x       expression
		name    string
		negated bool
	}
	binary struct {
		operator string
		x, y     expression
	}
	conditional struct{ test, yes, no expression }
	list        struct{ items []expression }
	dict        struct{ keys, values []expression }

	// argument of a call or filter; name is empty for a positional one.
	argument struct {
		name string
		x    expression
	}
)

// Statements, pointers as well.
type (
	statement interface{}

	textStatement  struct{ text string }
	printStatement struct{ x expression }
	setStatement   struct{ target, value expression }
	ifStatement    struct {
		test    expression
		yes, no []statement
	}
	forStatement struct {
		names    []string
		iterable expression
		test     expression // nil for none
		body     []statement
	}
	macroStatement struct {
		name       string
		parameters []string
		body       []statement
	}
)
