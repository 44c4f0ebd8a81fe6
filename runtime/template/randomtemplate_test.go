package template_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Random makes templates and the variables that they read. The same seed gives the same ones. Most of what it makes
// renders: it knows which type an expression has to have, and gives another one now and then.
type Random struct {
	// Plain leaves out what the engine has no words for, such as fractions, which a lowered template cannot have.
	Plain bool

	rng    *rand.Rand
	names  []variable // assigned so far
	macros []string   // "name/number of parameters"
	loops  int        // around the place at hand
	budget int        // statements that the template may still have
}

// variable is a name and the type of its value.
type variable struct {
	name string
	is   kind
}

// NewRandom makes a generator.
func NewRandom(seed uint64) *Random { return &Random{rng: rand.New(rand.NewPCG(seed, 1))} }

func (g *Random) n(n int) int                   { return g.rng.IntN(n) }
func (g *Random) chance(percent int) bool       { return g.n(100) < percent }
func (g *Random) pick(list ...string) string    { return list[g.n(len(list))] }
func (g *Random) words(list string) string      { return g.pick(strings.Fields(list)...) }
func (g *Random) some(parts ...string) string   { return strings.Join(parts[:g.n(len(parts)+1)], "") }
func (g *Random) number(low, beyond int) string { return fmt.Sprint(low + g.n(beyond-low)) }

// Template makes a template.
func (g *Random) Template() string {
	g.names, g.macros, g.loops = nil, nil, 0
	g.budget = 2 + g.n(9)
	s := g.body(3)
	if g.chance(5) {
		s = strings.ReplaceAll(s, "\n", "\r\n")
	}
	if g.chance(2) { // most of these are no templates
		at := g.n(len(s) + 1)
		s = s[:at] + g.pick("{{", "}}", "{%", "%}", "{#", "#}", "-", "{% endif %}", "{% else %}", "'", "(", "]", "\\", "|", ".", "~") + s[at:]
	}
	return strings.ToValidUTF8(s, "")
}

// body makes statements and the text between them.
func (g *Random) body(depth int) string {
	var b strings.Builder
	for range 1 + g.n(3) {
		if g.budget--; g.budget < 0 {
			break
		}
		b.WriteString(g.text())
		b.WriteString(g.statement(depth))
	}
	b.WriteString(g.text())
	return b.String()
}

func (g *Random) text() string {
	if g.Plain {
		return g.pick("", "", "", "a", " ", "\n", "\n\n", "  \n  ", "x\n", "\n  y", " z ", "}", "%", "#", "<|im_start|>", "\n\t ")
	}
	if g.chance(1) {
		return "{"
	}
	return g.pick("", "", "", "a", " ", "\n", "\n\n", "  \n  ", "\t", "x\n", "\n  y", " z ", "\u00e9", "{ ", "}", "%", "#", "\v",
		"\u00a0\n", "<|im_start|>", "\n\t ", "\u2028", "\x1c ", "\f", "\r", "\r\n ")
}

// tag makes a tag with marks for white space.
func (g *Random) tag(format string, args ...any) string {
	begin, end := g.pick("", "", "", "", "-", "-", "+"), g.pick("", "", "", "", "-", "-", "+")
	return "{%" + begin + " " + fmt.Sprintf(format, args...) + " " + end + "%}"
}

func (g *Random) print(x string) string {
	end := g.pick("", "", "", "", "-")
	if g.n(1000) == 0 {
		end = "+"
	}
	space := g.pick(" ", " ", "", "\n")
	if strings.HasPrefix(x, "-") || strings.HasPrefix(x, "+") || strings.HasPrefix(x, "{") || strings.HasSuffix(x, "}") {
		space = " "
	}
	return "{{" + g.pick("", "", "", "", "-", "+") + space + x + space + end + "}}"
}

func (g *Random) statement(depth int) string {
	if depth == 0 || g.chance(45) {
		return g.print(g.expression(anything, 3))
	}
	depth--
	list := []func() string{
		func() string { return g.print(g.expression(text, 3)) },
		func() string { return g.set(depth) }, func() string { return g.set(depth) }, func() string { return g.set(depth) },
		func() string { return g.branches(depth) }, func() string { return g.branches(depth) },
		func() string { return g.loop(depth) }, func() string { return g.loop(depth) }, func() string { return g.loop(depth) },
		func() string { return g.namespace(depth) },
		func() string { return g.macro(depth) },
		func() string { return g.callBlock(depth) },
		func() string { return g.filterBlock(depth) },
		func() string { return g.with(depth) },
		func() string { return g.tag("generation") + g.scoped(depth) + g.tag("endgeneration") },
		func() string {
			return g.tag("raw") + g.text() + g.pick("{{ x }}", "{% y %}", "{# z #}", "{", "}}") + g.text() + g.tag("endraw")
		},
		func() string {
			return "{#" + g.pick("", "-", "+") + g.text() + g.pick(" c ", "'", "{{ x }}", "\n") + g.pick("", "-", "+") + "#}"
		},
		func() string { return g.leave() },
	}
	return list[g.n(len(list))]()
}

// scoped is a body whose assignments are forgotten behind it.
func (g *Random) scoped(depth int) string {
	names, macros := len(g.names), len(g.macros)
	s := g.body(depth)
	if !g.chance(10) {
		g.names, g.macros = g.names[:names], g.macros[:macros]
	}
	return s
}

func (g *Random) assign(is kind) string {
	id := g.words("a b c x y n s l")
	if g.Plain {
		id = map[kind]string{text: "a", integer: "b", truth: "c", list: "x", dict: "y", anything: "z"}[is]
	}
	if g.chance(3) && !g.Plain {
		id = g.words("loop messages range caller kwargs varargs \u00e9")
	}
	g.names = append(g.names, variable{id, is})
	return id
}

func (g *Random) kind() kind {
	if is := kind(g.n(int(anything) + 1)); !g.Plain || is != fraction {
		return is
	}
	return text
}

func (g *Random) set(depth int) string {
	switch g.n(6) {
	case 0:
		filters := ""
		if g.chance(40) {
			filters = g.pick(" | ", "|") + g.textFilter(1)
		}
		body := g.scoped(depth)
		return g.tag("set %s%s", g.assign(text), filters) + body + g.tag("endset")
	case 1:
		is1, is2 := g.kind(), g.kind()
		values := g.expression(is1, 2) + ", " + g.expression(is2, 2)
		return g.tag("set %s, %s = %s", g.assign(is1), g.assign(is2), values)
	}
	is := g.kind()
	value := g.expression(is, 3)
	return g.tag("set %s = %s", g.assign(is), value)
}

func (g *Random) namespace(depth int) string {
	id := g.words("ns ns q")
	is := g.kind()
	if g.Plain {
		is = text
	}
	s := g.tag("set %s = namespace(%s=%s)", id, g.words("x y"), g.expression(is, 1))
	inner := g.tag("set %s.%s = %s", id, g.words("x y"), g.pick(id+".x", g.expression(is, 2), id+".x ~ "+g.expression(text, 1)))
	if g.chance(60) {
		inner = g.tag("for v in %s", g.expression(list, 1)) + inner + g.scoped(depth) + g.tag("endfor")
	}
	return s + inner + g.print(id+"."+g.words("x y"))
}

func (g *Random) branches(depth int) string {
	s := g.tag("if %s", g.condition(3)) + g.scoped(depth)
	for g.chance(30) {
		s += g.tag("elif %s", g.condition(3)) + g.scoped(depth)
	}
	if g.chance(50) {
		s += g.tag("else") + g.scoped(depth)
	}
	return s + g.tag("endif")
}

func (g *Random) loop(depth int) string {
	names := len(g.names)
	target, iterable := "", ""
	form := g.n(5)
	if g.Plain && form == 0 {
		form = 1 // the order of keys is another one
	}
	switch form {
	case 0:
		iterable = g.pick(g.expression(dict, 1)+".items()", g.expression(dict, 1)+"|items", g.expression(dict, 1)+"|dictsort",
			g.expression(list, 1)+"|groupby('role')")
		target = g.assign(text) + ", " + g.assign(anything)
	case 1:
		iterable = "messages" + g.pick("", "", "[1:]", "[::-1]", "|reverse", "[:-1]")
		target = "m"
		g.names = append(g.names, variable{"m", dict})
	default:
		iterable = g.expression(list, 2)
		if g.chance(15) && !g.Plain {
			iterable = g.expression(g.kind(), 2)
		}
		target = g.assign(anything)
	}
	test, recursive := "", ""
	if g.chance(20) {
		test = " if " + g.condition(1)
	}
	if g.chance(8) && !g.Plain {
		recursive = " recursive"
	}
	s := g.tag("for %s in %s%s%s", target, iterable, test, recursive)
	g.loops++
	s += g.body(depth)
	if recursive != "" {
		s += g.tag("if loop.depth < 3") + g.print("loop("+g.expression(list, 1)+")") + g.tag("endif")
	}
	g.loops--
	if g.chance(20) {
		s += g.tag("else") + g.scoped(depth)
	}
	g.names = g.names[:min(names, len(g.names))]
	return s + g.tag("endfor")
}

func (g *Random) leave() string {
	if g.loops == 0 && !g.chance(5) {
		return g.text()
	}
	return g.tag("if %s", g.condition(2)) + g.text() + g.tag("%s", g.words("break continue")) + g.tag("endif")
}

// argument is the type of an argument of a macro.
func (g *Random) argument() kind {
	if g.Plain {
		return text
	}
	return g.kind()
}

func (g *Random) parameters() (list string, count int) {
	count = g.n(4)
	defaults := false
	var b strings.Builder
	for i := range count {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "p%d", i)
		if defaults = defaults || g.chance(40); defaults {
			b.WriteString("=" + g.expression(g.argument(), 1))
		}
	}
	return b.String(), count
}

func (g *Random) macro(depth int) string {
	id := g.words("f g h")
	parameters, count := g.parameters()
	names, loops := g.names, g.loops
	g.loops = 0
	for i := range count {
		g.names = append(g.names[:len(g.names):len(g.names)], variable{fmt.Sprintf("p%d", i), g.argument()})
	}
	body := g.scoped(depth)
	if !g.Plain {
		body += g.pick("", "", "", g.print("varargs"), g.print("kwargs|list"), g.print("caller is defined"), g.print("caller()"))
	}
	g.names, g.loops = names, loops
	g.macros = append(g.macros, fmt.Sprintf("%s/%d", id, count))
	return g.tag("macro %s(%s)", id, parameters) + body + g.tag("endmacro") + g.print(g.callMacro(2))
}

// callMacro calls one of the macros, most often with as many arguments as it has.
func (g *Random) callMacro(depth int) string {
	if len(g.macros) == 0 {
		return g.expression(text, depth)
	}
	m := g.macros[g.n(len(g.macros))]
	id, count := m[:1], int(m[2]-'0')
	if g.chance(10) && !g.Plain {
		count = g.n(5)
	}
	var args []string
	for i := range count {
		switch x := g.expression(g.argument(), depth-1); {
		case g.chance(15):
			args = append(args, fmt.Sprintf("p%d=%s", i, x))
		case len(args) == 0 || !strings.HasPrefix(args[len(args)-1], "p") || !strings.Contains(args[len(args)-1], "="):
			args = append(args, x)
		}
		if g.chance(10) {
			break
		}
	}
	return id + "(" + strings.Join(args, ", ") + ")"
}

func (g *Random) callBlock(depth int) string {
	id := g.words("f g h")
	parameters, argument := "", ""
	if g.chance(40) {
		parameters, argument = "(v)", g.expression(g.argument(), 1)
	}
	s := g.tag("macro %s()", id) + g.text() + g.print("caller("+argument+")") + g.text() + g.tag("endmacro")
	g.macros = append(g.macros, id+"/0")
	g.names = append(g.names, variable{"v", anything})
	s += g.tag("call%s %s()", parameters, id) + g.scoped(depth) + g.tag("endcall")
	return s
}

func (g *Random) filterBlock(depth int) string {
	filters := g.textFilter(1)
	if g.chance(20) {
		filters += "|" + g.textFilter(1)
	}
	return g.tag("filter %s", filters) + g.scoped(depth) + g.tag("endfilter")
}

func (g *Random) with(depth int) string {
	is := g.kind()
	value := g.expression(is, 2)
	return g.tag("with %s = %s", g.assign(is), value) + g.scoped(depth) + g.tag("endwith")
}
