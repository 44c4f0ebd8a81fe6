package template

import (
	"fmt"
	"strconv"
	"strings"
)

// writer writes a tree as the source of a template. It spells things so that no reader can take them for something
// else: every part of an expression that has parts is in brackets, white space is never left to the rules of trimming,
// and tags have no marks for it.
type writer struct {
	pieces []piece
}

// piece is a text, or a tag as it is written.
type piece struct {
	kind pieceKind
	s    string
}

type pieceKind uint8

const (
	pieceText pieceKind = iota
	piecePrint
	pieceTag
)

// source gives the source of a tree that lowering has made.
func source(body []statement) string {
	var w writer
	w.body(body)
	var b strings.Builder
	for i, c := range w.pieces {
		switch {
		case c.kind != pieceText:
			b.WriteString(c.s)
		case w.plain(i):
			b.WriteString(c.s)
		default:
			b.WriteString("{{ " + Quote(c.s) + " }}")
		}
	}
	return b.String()
}

// plain reports whether a text can stand as it is: nothing in it looks like a tag, and no rule of trimming applies.
func (w *writer) plain(i int) bool {
	s := w.pieces[i].s
	if strings.ContainsAny(s, "{\r") {
		return false
	}
	if i > 0 && w.pieces[i-1].kind == pieceTag && s[0] == '\n' {
		return false
	}
	if i+1 == len(w.pieces) {
		return !strings.HasSuffix(s, "\n")
	}
	if w.pieces[i+1].kind != pieceTag {
		return true
	}
	last := s[strings.LastIndexByte(s, '\n')+1:]
	return strings.Trim(last, " \t\v\f") != "" || last == "" && i > 0
}

func (w *writer) add(kind pieceKind, s string) {
	if s == "" {
		return
	}
	if n := len(w.pieces); kind == pieceText && n > 0 && w.pieces[n-1].kind == pieceText {
		w.pieces[n-1].s += s
		return
	}
	w.pieces = append(w.pieces, piece{kind, s})
}

func (w *writer) tag(format string, args ...any) {
	w.add(pieceTag, "{% "+fmt.Sprintf(format, args...)+" %}")
}

func (w *writer) body(body []statement) {
	for _, s := range body {
		w.statement(s)
	}
}

func (w *writer) statement(s statement) {
	switch s := s.(type) {
	case *textStatement:
		w.add(pieceText, s.text)
	case *printStatement:
		if c, ok := s.x.(*constant); ok {
			if text, ok := c.value.(string); ok {
				w.add(pieceText, text)
				return
			}
		}
		w.add(piecePrint, "{{ "+spell(s.x)+" }}")
	case *ifStatement:
		for i, b := range s.branches {
			w.tag("%s %s", []string{"if", "elif"}[min(i, 1)], spell(b.test))
			w.body(b.body)
		}
		if len(s.otherwise) > 0 {
			w.tag("else")
			w.body(s.otherwise)
		}
		w.tag("endif")
	case *forStatement:
		test := ""
		if s.test != nil {
			test = " if " + spell(s.test)
		}
		w.tag("for %s in %s%s", strings.Trim(spell(s.target), "[]"), spell(s.iterable), test)
		w.body(s.body)
		w.tag("endfor")
	case *setStatement:
		w.tag("set %s = %s", spell(s.target), spell(s.value))
	case *macroStatement:
		w.tag("macro %s(%s)", s.macro.name, strings.Join(s.macro.parameters, ", "))
		w.body(s.macro.body)
		w.tag("endmacro")
	default:
		panic(fmt.Sprintf("internal error: a %T is not lowered", s))
	}
}

// spell writes an expression.
func spell(x expression) string {
	switch x := x.(type) {
	case *constant:
		switch v := x.value.(type) {
		case nil:
			return "none"
		case string:
			return Quote(v)
		default:
			return fmt.Sprint(v)
		}
	case *name:
		return x.id
	case *namespaceTarget:
		return x.id + "." + x.attribute
	case *tupleLiteral:
		return spellList(x.items)
	case *listLiteral:
		return spellList(x.items)
	case *dictLiteral:
		items := make([]string, len(x.keys))
		for i := range x.keys {
			items[i] = spell(x.keys[i]) + ": " + spell(x.values[i])
		}
		return "{ " + strings.Join(items, ", ") + " }" // two brackets together would end the tag
	case *unary:
		if x.operator == "not" {
			return "(not " + spell(x.x) + ")"
		}
		return "(" + x.operator + spell(x.x) + ")"
	case *binary:
		return "(" + spell(x.x) + " " + x.operator + " " + spell(x.y) + ")"
	case *concat:
		parts := make([]string, len(x.parts))
		for i, part := range x.parts {
			parts[i] = spell(part)
		}
		return "(" + strings.Join(parts, " ~ ") + ")"
	case *comparison:
		s := spell(x.first)
		for _, o := range x.rest {
			s += " " + o.operator + " " + spell(o.x)
		}
		return "(" + s + ")"
	case *conditional:
		return "(" + spell(x.yes) + " if " + spell(x.test) + " else " + spell(x.no) + ")"
	case *attribute:
		return spell(x.x) + "." + x.name
	case *item:
		return spell(x.x) + "[" + spell(x.key) + "]"
	case *slice:
		s := spell(x.x) + "["
		if x.start != nil {
			s += spell(x.start)
		}
		s += ":"
		if x.stop != nil {
			s += spell(x.stop)
		}
		if x.step != nil {
			s += ":" + spell(x.step)
		}
		return s + "]"
	case *call:
		return spell(x.function) + "(" + spellArguments(x.arguments) + ")"
	case *filter:
		s := "(" + spell(x.x) + "|" + x.name
		if a := spellArguments(x.arguments); a != "" {
			s += "(" + a + ")"
		}
		return s + ")"
	case *test:
		return "(" + spell(x.x) + " is " + x.name + ")"
	}
	panic(fmt.Sprintf("internal error: a %T is not lowered", x))
}

func spellList(items []expression) string {
	list := make([]string, len(items))
	for i, x := range items {
		list[i] = spell(x)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func spellArguments(a arguments) string {
	var list []string
	for _, x := range a.positional {
		list = append(list, spell(x))
	}
	for _, k := range a.keyword {
		list = append(list, k.name+"="+spell(k.x))
	}
	return strings.Join(list, ", ")
}

// Quote writes a text as templates have it: between quotes, with escapes that every reader of templates knows.
func Quote(s string) string {
	quote := "'"
	if strings.Contains(s, quote) && !strings.Contains(s, `"`) {
		quote = `"`
	}
	return quote + strings.NewReplacer(`\`, `\\`, quote, `\`+quote, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s) + quote
}

// isIdentifierName reports whether a name is one for the engine, which knows ASCII only.
func isIdentifierName(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// numbered is the name of the n-th variable that lowering needs.
func numbered(prefix string, n int) string { return prefix + strconv.Itoa(n) }
