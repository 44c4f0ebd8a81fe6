package lower

import "github.com/llmexport/llmexport/runtime/template/syntax"

func constant(value any) *syntax.Constant { return &syntax.Constant{Value: value} }

func named(id string) *syntax.Name { return &syntax.Name{ID: id} }

func not(x syntax.Expression) *syntax.Unary { return &syntax.Unary{Operator: "not", X: x} }

func defined(x syntax.Expression) *syntax.Test { return &syntax.Test{X: x, Name: "defined"} }

func attribute(x syntax.Expression, name string) *syntax.Attribute {
	return &syntax.Attribute{X: x, Name: name}
}

func listed(items ...syntax.Expression) *syntax.List { return &syntax.List{Items: items} }

func called(function syntax.Expression, args ...syntax.Expression) *syntax.Call {
	return &syntax.Call{Function: function, Arguments: syntax.Arguments{Positional: args}}
}

func compare(x syntax.Expression, operator string, y syntax.Expression) *syntax.Comparison {
	return &syntax.Comparison{First: x, Rest: []syntax.Operand{{Operator: operator, X: y}}}
}

func assign(target, value syntax.Expression) *syntax.Set {
	return &syntax.Set{Target: target, Value: value}
}

func when(test syntax.Expression, body ...syntax.Statement) *syntax.If {
	return &syntax.If{Branches: []syntax.Branch{{Test: test, Body: body}}}
}
