package template_test

import "strings"

// kind is the type of a value.
type kind int

const (
	text kind = iota
	integer
	fraction
	truth
	list
	dict
	anything
)

// inputs are the variables of [Random.Variables] by type.
var inputs = map[kind]string{
	text: "s u text bos_token eos_token html empty", integer: "n zero negative", fraction: "f", truth: "t add_generation_prompt enable_thinking",
	list: "l words messages tools people e", dict: "d o messages[0] messages[-1] people[0] tools[0] d.a", anything: "none_value nope mixed",
}

// plainInputs are those of which all parts have a known type, and print as one line of text.
var plainInputs = map[kind]string{
	text: inputs[text], integer: inputs[integer], truth: inputs[truth], list: "l words e",
	dict: "messages[0] messages[-1] people[0]", anything: "none_value nope n s t",
}

// expression makes an expression of a type, or now and then of another one.
func (g *Random) expression(is kind, depth int) string {
	switch {
	case !g.Plain && g.chance(2):
		is = g.kind()
	case g.chance(2) && (!g.Plain || is == anything):
		return g.pick("nope", "nope.x", "d.nope", "messages[9]", "messages[0].nope", "none", "nope[0]", "d['nope']")
	}
	if depth <= 0 || g.chance(15) {
		return g.atom(is)
	}
	depth--
	if g.chance(6) {
		return "(" + g.expression(is, depth) + g.space() + "if " + g.condition(depth) + " else " + g.expression(is, depth) + ")"
	}
	if g.chance(4) {
		return "(" + g.expression(is, depth) + ")"
	}
	switch is {
	case text:
		return g.textual(depth)
	case integer:
		return g.integral(depth)
	case fraction:
		if !g.Plain {
			return g.fractional(depth)
		}
		return g.integral(depth)
	case truth:
		if g.Plain {
			return "(not (" + g.condition(depth) + "))"
		}
		return g.condition(depth)
	case list:
		return g.listed(depth)
	case dict:
		return g.dictionary(depth)
	}
	if g.Plain {
		if g.chance(30) {
			return g.plain(depth)
		}
		return g.expression(kind(g.n(int(list))), depth)
	}
	switch g.n(8) {
	case 0:
		return "(" + g.expression(anything, depth) + g.pick(" or ", " and ") + g.expression(anything, depth) + ")"
	case 1:
		return g.operand(list, depth) + "[" + g.expression(integer, depth) + "]"
	case 2:
		return g.operand(dict, depth) + "[" + g.key() + "]"
	case 3:
		return g.operand(dict, depth) + "." + g.attribute()
	case 4:
		return g.operand(anything, depth) + "|" + g.pick("default('x')", "default(1, true)", "d", "default(none)", "string", "first",
			"last", "list", "length", "tojson", "tojson(indent=2)", "default('y', boolean=true)")
	case 5:
		if g.loops > 0 {
			return "loop." + g.words("index index0 first last length revindex revindex0 previtem nextitem depth depth0 cycle(1,'b') changed(n)")
		}
	case 6:
		if g.chance(20) {
			return "(" + g.expression(anything, depth) + " if " + g.condition(depth) + ")"
		}
		return g.callMacro(depth)
	}
	return g.expression(kind(g.n(int(anything))), depth)
}

// plain is an expression of a type that nobody knows.
func (g *Random) plain(depth int) string {
	switch g.n(5) {
	case 0:
		return "(" + g.expression(anything, depth) + g.pick(" or ", " and ") + g.expression(anything, depth) + ")"
	case 1:
		return g.operand(dict, depth) + g.pick(".role", ".content", ".name", "['role']", ".city", ".get('name')", ".get('nope', 'x')", ".age", ".nope")
	case 2:
		if g.loops > 0 {
			return "loop." + g.words("index index0 first last length revindex revindex0")
		}
	case 3:
		return g.operand(anything, depth) + "|" + g.pick("default('x')", "default(1, true)", "d", "string", "default('y', boolean=true)")
	}
	return g.callMacro(depth)
}

func (g *Random) space() string { return g.pick(" ", " ", "  ", "\n") }

// operand is an expression that an operator, a dot or a bar may follow.
func (g *Random) operand(is kind, depth int) string {
	x := g.expression(is, depth)
	if strings.ContainsAny(x, " ~+-*/%<>=!|\n") && (g.Plain || !g.chance(3)) {
		return "(" + x + ")"
	}
	return x
}

func (g *Random) key() string {
	return g.pick("'a'", "'b'", "'role'", "'content'", "'name'", "'items'", "\"age\"", "'nope'", "s", "1", "'tool_calls'", "words[0]")
}

func (g *Random) attribute() string {
	return g.words("a b role content name items age nope tool_calls city keys values function parameters get reasoning_content 0")
}

func (g *Random) atom(is kind) string {
	if is == fraction && g.Plain {
		is = integer
	}
	if g.chance(35) {
		for _, i := range g.rng.Perm(len(g.names)) {
			if v := g.names[i]; v.is == is || is == anything && !(g.Plain && (v.is == dict || v.is == list)) || !g.Plain && g.chance(5) {
				return v.name
			}
		}
	}
	if g.chance(50) {
		if g.Plain {
			return g.words(plainInputs[is])
		}
		return g.words(inputs[is])
	}
	switch is {
	case text:
		return g.literal()
	case integer:
		if g.chance(4) && !g.Plain {
			return g.words("100 255 -1 1000000 2147483648 9007199254740993 9223372036854775807 9223372036854775808 0x1f 1_000 0b11 0o17")
		}
		return g.number(0, 6)
	case fraction:
		return g.words("1.5 0.1 2.0 1e16 1e15 1e-5 0.0 2.5 3.5 1e22 123456789.125 1e3 0.30000000000000004 1_0.5")
	case truth:
		return g.words("true false True False none None")
	case list:
		if g.Plain {
			return g.pick("[]", "[1, 2, 3]", "['a', 'B', 'c']", "range(3)|list", "[n, s]", "[n]", "words")
		}
		return g.pick("[]", "[1, 2, 3]", "['a', 'B', 'c']", "(1, 'x')", "[none, true]", "()", "range(3)", "[[1, 2], [3]]", "[n, s]", "(n,)", "range(5, 0, -2)")
	case dict:
		if g.Plain {
			return g.pick("{'role': 'user', 'content': text}", "{'name': s}", "messages[0]")
		}
		return g.pick("{}", "{'a': 1}", "{'b': s, 'a': [n]}", "{'role': 'user', 'content': text}", "dict(a=n, b=none)", "{ 'x': {'y': none} }")
	}
	if g.Plain {
		return g.atom(kind(g.n(int(list))))
	}
	return g.atom(kind(g.n(int(anything))))
}

// literal is a text, most often a short one.
func (g *Random) literal() string {
	if g.Plain {
		return g.pick("''", "'a'", "\"b\"", "'user'", "'role'", "'hello world'", "' x '", "'\\n'", "'</think>'", "'1'", "'a,b'", "\"it's\"", "'{{'", "'%}'")
	}
	s := g.pick("", "a", "b", "user", "role", "hello world", "A", " x ", "\n", "\u00e9", "\u00df", "\U0001F389", "</think>", "1",
		"-7", "2.5", "a,b", "\\n", "\\t", "\\u00e9", "\\\\", "x\\x41", "{{", "%}", "<b>&", "\u0130", "\u01c6", "\ufb01", "\u03a3\u03a3",
		"1e3", " 12 ", "nan", "%s", "{}", "\\'", "\\\"", "\x00", "\u00b2", "\u0663", "it\\'s", "\\d", "\u2028", "a\\\nb")
	quote := g.pick("'", "\"")
	return quote + s + quote
}

func (g *Random) textual(depth int) string {
	x := g.operand(text, depth)
	part := g.n(12)
	if g.Plain && part >= 2 && part <= 4 { // the engine has no parts of texts
		part = 5
	}
	switch part {
	case 0:
		other := g.kind()
		if g.Plain {
			other = anything
		}
		return x + g.pick(" ~ ", "~") + g.operand(other, depth) + g.some(" ~ 'x'")
	case 1:
		return x + g.pick(" + ", "+") + g.operand(text, depth)
	case 2:
		if !g.chance(15) {
			return x + " * " + g.operand(integer, min(depth, 1))
		}
		return x + " % " + g.pick("1", "'x'", "(1, 2)", "n", "{'a': 1}", "f", "(s,)", g.operand(anything, depth))
	case 3:
		return x + g.slice(depth)
	case 4:
		return x + "[" + g.expression(integer, depth) + "]"
	case 5, 6:
		return x + "." + g.textMethod(depth)
	case 7:
		if g.Plain {
			return g.operand(list, depth) + "|join" + g.pick("", "(', ')", "("+g.expression(text, 0)+")", "(d='+')")
		}
		return g.operand(list, depth) + "|join" + g.pick("", "(', ')", "("+g.expression(text, 0)+")", "(',', attribute='role')",
			"('-', 'name')", "(attribute='a')", "(d='+')")
	case 8:
		if g.Plain {
			return g.operand(anything, depth) + g.pick("|string", "|tojson", "|trim", "|upper", "|lower")
		}
		return g.operand(anything, depth) + g.pick("|string", "|tojson", "|tojson(indent=2)", "|tojson(ensure_ascii=true)",
			"|tojson(indent=4, sort_keys=true)", "|tojson(separators=(',', ':'))", "|trim", "|upper", "|e", "|safe", "|tojson|safe",
			"|tojson(indent=0)", "|tojson(true)", "|tojson(indent='\\t')", "|title", "|lower")
	}
	return x + g.pick("|", " | ") + g.textFilter(depth)
}

func (g *Random) slice(depth int) string {
	part := func() string {
		if g.chance(40) {
			return ""
		}
		return g.pick("0", "1", "2", "-1", "-2", "3", "n", "none", "-9", g.expression(integer, depth-1))
	}
	s := "[" + part() + ":" + part()
	if g.chance(35) {
		s += ":" + g.pick("", "-1", "2", "-2", "1", "0", part())
	}
	return s + "]"
}

func (g *Random) textMethod(depth int) string {
	x := g.expression(text, min(depth, 1))
	if g.Plain {
		x = g.literal()
		return g.pick("strip()", "lstrip()", "rstrip()", "strip("+x+")", "lstrip("+x+")", "rstrip('\\n')", "upper()", "lower()",
			"capitalize()", "replace('a', "+x+")", "replace('ll', 'z')", "split(',')[0]", "split('o')[-1]", "split(' ', 1)|last")
	}
	methods := []string{
		"strip()", "lstrip()", "rstrip()", "strip(%s)", "lstrip(%s)", "rstrip('\\n')", "upper()", "lower()", "capitalize()",
		"replace(%s, 'z')", "replace('a', %s)", "split(%s)[0]", "split(%s)[-1]", "split()|join('-')", "split(%s, 1)|last",
	}
	if !g.Plain {
		methods = append(methods, "title()", "swapcase()", "casefold()", "replace('a', %s, 1)", "center(9)", "ljust(8, '*')",
			"rjust(7)", "zfill(6)", "expandtabs(4)", "expandtabs()",
			"removeprefix(%s)", "removesuffix(%s)", "format(%s, n)", "format(a=%s)", "format(*words)", "join(words)", "join(['a', %s])",
			"partition(%s)[2]", "rpartition(%s)|list", "rsplit(%s, 1)|join",
			"rsplit()[0]", "splitlines()|join('|')", "splitlines(true)|list", "replace(%s, '', count=2)", "encode()", "strip(none)",
			"split(none, 1)[0]", "translate({97: 'b'})", "zfill(%s)", "center(5, %s)", "replace('', %s)", "rsplit('a')[-1]",
			"format_map({'a': %s})")
	}
	m := g.pick(methods...)
	return strings.ReplaceAll(m, "%s", x)
}

// textFilter is a filter that gives a text.
func (g *Random) textFilter(depth int) string {
	x := g.expression(text, min(depth, 1))
	if g.Plain {
		return g.pick("upper", "lower", "trim", "trim", "capitalize", "replace('a', 'b')", "replace('o', "+x+")", "string",
			"default('z')", "default("+x+", true)", "tojson", "trim('ax')")
	}
	filters := []string{"upper", "lower", "trim", "trim", "capitalize", "replace('a', 'b')", "replace(%s, 'q')", "string",
		"default('z')", "default(%s, true)", "tojson", "trim(%s)", "join", "join('.')"}
	if !g.Plain {
		filters = append(filters, "title", "indent", "indent(2)", "indent(2, true)", "indent(3, blank=true)",
			"indent(width=1, first=true)", "indent('>>')", "center(9)", "reverse", "replace('a', %s, 1)", "escape", "e",
			"safe", "format(1)", "format(%s, 2)", "format(a=1)", "first", "last", "list", "wordcount|string", "replace(%s, '', count=1)",
			"escape|safe", "center(width=n)", "attr('x')|string", "upper|lower", "batch(2)|list|string", "unique|join", "sort|join",
			"map('upper')|join", "select|join", "length|string", "min", "max", "tojson(indent=n)")
	}
	f := g.pick(filters...)
	return strings.ReplaceAll(f, "%s", x)
}

func (g *Random) integral(depth int) string {
	if g.Plain {
		switch g.n(4) {
		case 0:
			return g.operand(integer, depth) + g.pick(" + ", " - ") + g.operand(integer, depth)
		case 1:
			return g.operand(kind([]kind{text, list}[g.n(2)]), depth) + "|" + g.pick("length", "count")
		case 2:
			if g.loops > 0 {
				return "loop." + g.words("index index0 length revindex")
			}
		case 3:
			return g.operand(list, depth) + "|length % " + g.number(2, 5)
		}
		return g.atom(integer)
	}
	switch g.n(10) {
	case 0, 1, 2:
		operator := g.words("+ - * // % + - *")
		if g.Plain {
			operator = g.words("+ - * + - %")
		}
		space := g.pick(" ", " ", "")
		return g.operand(integer, depth) + space + operator + space + g.operand(integer, depth)
	case 3:
		return g.pick("-", "+", "-", "- ") + g.operand(integer, depth)
	case 4:
		if !g.Plain || g.chance(10) {
			return g.atom(integer) + " ** " + g.words("0 1 2 3 -1")
		}
	case 5:
		return g.operand(kind(g.n(int(anything)+1)), depth) + "|" + g.pick("length", "count", "int", "int(7)", "int", "abs")
	case 6:
		return g.operand(text, depth) + "|" + g.pick("int", "length", "int(default=3)", "int(0, 16)", "wordcount", "int(base=2)")
	case 7:
		x := g.expression(text, 0)
		return g.operand(text, depth) + "." + strings.ReplaceAll(g.pick("find(%s)", "count(%s)", "index(%s)", "rfind(%s)", "find(%s, 1)", "count(%s, 0, 4)"), "%s", x)
	case 8:
		return g.operand(list, depth) + "|" + g.pick("sum", "length", "max", "min", "first", "last", "sum(start=3)",
			"sum(attribute='age')", "map(attribute='age')|sum")
	}
	if g.loops > 0 {
		return "loop." + g.words("index index0 length revindex")
	}
	return g.atom(integer)
}

func (g *Random) fractional(depth int) string {
	switch g.n(6) {
	case 0, 1:
		return g.operand(fraction, depth) + g.space() + g.words("+ - * / // % /") + " " + g.operand(g.numeric(), depth)
	case 2:
		return g.operand(integer, depth) + " / " + g.operand(integer, depth)
	case 3:
		return g.operand(g.numeric(), depth) + "|" + g.pick("round", "round(1)", "round(2)", "round(1, 'ceil')", "round(0, 'floor')",
			"float", "abs", "int", "round(precision=3)", "round(2, method='floor')", "round(-1)")
	case 4:
		return g.operand(text, depth) + "|" + g.pick("float", "float(1.5)", "float(default=none)")
	}
	return "-" + g.operand(fraction, depth)
}

func (g *Random) numeric() kind { return kind(int(integer) + g.n(2)) }

// condition is an expression that is looked at as true or false.
func (g *Random) condition(depth int) string {
	if depth <= 0 {
		return g.atom(kind(g.n(int(anything) + 1)))
	}
	depth--
	is := g.kind()
	if g.Plain {
		is = kind(g.n(int(anything)))
	}
	switch g.n(9) {
	case 0, 1:
		same := is
		if g.chance(10) && !g.Plain {
			same = g.kind()
		}
		operator := g.words("== != == != < <= > >=")
		if is > fraction && !g.chance(15) || g.Plain && is != integer {
			operator = g.words("== !=")
		}
		s := g.operand(is, depth) + g.space() + operator + " " + g.operand(same, depth)
		if g.chance(8) && !g.Plain {
			s += " " + g.words("== < != in") + " " + g.operand(is, depth)
		}
		return s
	case 2:
		if g.Plain {
			return g.atom(text) + g.pick(" in ", " not in ") + g.operand(list, depth)
		}
		return g.operand(anything, depth) + g.pick(" in ", " not in ") + g.operand(list, depth)
	case 3:
		if g.Plain {
			return g.operand(text, depth) + g.pick(" in ", " not in ") + g.operand(text, depth)
		}
		return g.operand(text, depth) + g.pick(" in ", " not in ") + g.operand(kind([]kind{text, dict, text}[g.n(3)]), depth)
	case 4:
		return g.pick("not ", "not ") + g.operand(anything, depth)
	case 5:
		return g.operand(truth, depth) + g.pick(" and ", " or ") + g.operand(truth, depth)
	case 6:
		if g.Plain {
			return g.operand(text, depth) + "." + g.pick("starts", "ends") + "with(" + g.expression(text, 0) + ")"
		}
		return g.operand(text, depth) + "." + strings.ReplaceAll(g.pick("startswith(%s)", "endswith(%s)", "startswith(('a', %s))",
			"isdigit()", "isupper()", "isalpha()", "isspace()", "islower()", "isalnum()", "isnumeric()", "istitle()", "isdecimal()",
			"isidentifier()", "isascii()", "isprintable()"), "%s", g.expression(text, 0))
	case 7:
		return g.truthOf(depth)
	}
	return g.operand(anything, depth) + g.pick(" is ", " is not ") + g.test(depth)
}

// truthOf is a value that is a condition by itself.
func (g *Random) truthOf(depth int) string {
	if g.chance(20) && g.loops > 0 {
		return "loop." + g.words("first last")
	}
	return g.expression(g.kind(), depth)
}

func (g *Random) test(depth int) string {
	if g.Plain {
		return g.pick("defined", "undefined", "none", "string", "mapping", "iterable", "number", "true", "false", "integer", "boolean",
			"sequence", "equalto('a')", "in ['a', 'user']")
	}
	return g.pick("defined", "undefined", "none", "string", "mapping", "iterable", "number", "true", "false", "odd", "even",
		"integer", "float", "boolean", "sequence", "callable", "lower", "upper", "escaped",
		"divisibleby 3", "divisibleby(n)", "eq 1", "ne('a')", "gt 2", "lt(3)", "ge n", "le 1.5", "sameas none", "sameas(true)",
		"equalto "+g.atom(anything), "in "+g.atom(list), "in("+g.expression(list, depth)+")", "filter", "test", "greaterthan 1",
		"lessthan(2)")
}

func (g *Random) listed(depth int) string {
	x := g.operand(list, depth)
	if g.Plain {
		switch g.n(6) {
		case 0:
			return "[" + g.expression(anything, depth) + ", " + g.expression(text, depth) + "]"
		case 1:
			return x + g.pick("[1:]", "[:2]", "[::-1]", "[:-1]", "[0:1]", "[-1:]")
		case 2:
			return x + " + " + g.operand(list, depth)
		case 3:
			return g.operand(text, depth) + ".split(" + g.pick("' '", "','", "'a'", "'\n'") + ")"
		}
		return x + "|" + g.pick("map('string')|list", "select('string')|list", "reject('none')|list", "reverse|list", "list",
			"select|list", "map('upper')|list", "map('trim')|list", "select('in', ['user', 'a'])|list")
	}
	switch g.n(12) {
	case 0:
		var items []string
		for range g.n(4) {
			items = append(items, g.expression(g.kind(), depth))
		}
		if g.chance(25) && len(items) > 0 {
			return "(" + strings.Join(items, ", ") + ",)"
		}
		return "[" + strings.Join(items, ", ") + "]"
	case 1, 2:
		return x + g.slice(depth)
	case 3:
		return x + g.pick(" + ", "+") + g.operand(list, depth)
	case 4:
		return g.operand(text, depth) + "." + strings.ReplaceAll(g.pick("split(%s)", "split(%s, 1)", "split()", "splitlines()",
			"rsplit(%s, 2)", "partition(%s)", "split(%s, maxsplit=1)", "split(sep=%s)"), "%s", g.expression(text, 0))
	case 5:
		return g.operand(dict, depth) + g.pick(".keys()|list", ".values()|list", ".items()|list", "|items|list", "|list", "|dictsort",
			"|dictsort(false, 'value')", "|dictsort(reverse=true)", "|dictsort(by='value', reverse=true)", ".keys()")
	case 6:
		if !g.Plain {
			return g.pick(x+" * "+g.number(0, 4), "range("+g.expression(integer, 1)+")", "range(1, "+g.number(0, 9)+", 2)", "range("+g.number(0, 9)+", -1, -1)")
		}
	}
	f := []string{"map(attribute='role')|list", "map(attribute='content')|list", "map('string')|list",
		"selectattr('role', 'equalto', 'user')|list", "selectattr('role')|list", "rejectattr('content')|list", "select('string')|list",
		"reject('none')|list",
		"reverse|list", "list", "select|list", "selectattr('age', 'gt', 26)|list", "map('upper')|list",
		"map('trim')|list", "selectattr('name', 'defined')|list", "rejectattr('role', 'eq', 'system')|list",
		"select('in', [1, 'a'])|list"}
	if !g.Plain {
		f = append(f, "sort", "sort(reverse=true)", "sort(attribute='name')", "sort(case_sensitive=true)", "unique|list",
			"unique(true)|list", "unique(attribute='role')|list", "batch(2)|list", "batch(2, 'x')|list", "slice(2)|list",
			"slice(3, '-')|list", "groupby('role')",
			"groupby('city', default='?')", "map('default', 'x')|list", "map('replace', 'a', 'b')|list",
			"map(attribute='name', default='?')|list", "map('length')|list", "map('int')|list", "select('odd')|list",
			"reject('equalto', 1)|list", "map('join', '-')|list", "map(attribute='tags.0')|list",
			"sort(attribute='age,name')", "groupby('age')|map('first')|list", "map('tojson')|list", "map('first')|list",
			"select('defined')|list", "select('>', 1)|list", "map('round', 1)|list", "batch(n)|list", "map('selectattr', 'x')|list",
			"sort(false, true)", "groupby('city', case_sensitive=true)|map(attribute='list')|list", "map('items')|list",
			"map(attribute=0)|list")
	}
	return x + "|" + g.pick(f...)
}

func (g *Random) dictionary(depth int) string {
	if g.Plain {
		return g.pick("(messages|selectattr('role', 'equalto', 'user')|list)", "(messages|rejectattr('role', 'eq', 'system')|list)",
			"messages", "people", "messages[1:]") + g.pick("[0]", "[-1]", "|first", "|last")
	}
	switch g.n(5) {
	case 0, 1:
		var items []string
		for range g.n(4) {
			k := g.key()
			if !g.Plain && g.chance(15) {
				k = g.expression(g.kind(), 0)
			}
			items = append(items, k+": "+g.expression(g.kind(), depth))
		}
		return "{" + strings.Join(items, ", ") + " }"
	case 2:
		return g.operand(list, depth) + g.pick("[0]", "|first", "|last", "[-1]", "[n]")
	case 3:
		return g.operand(dict, depth) + g.pick(".get("+g.key()+")", ".get("+g.key()+", {})", ".get("+g.key()+", "+g.expression(anything, depth)+")", ".copy()")
	}
	if g.Plain {
		return g.atom(dict)
	}
	return g.pick("dict(a="+g.expression(g.kind(), depth)+")", "dict("+g.operand(list, depth)+")",
		"dict("+g.operand(dict, depth)+", z=1)", "dict([('a', n), ('b', s)])")
}
