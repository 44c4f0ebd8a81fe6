package syntax

import (
	"fmt"
	"strings"
)

// writer writes a tree as the source of a template, in a form that every reader understands alike: each compound part
// of an expression is in brackets, no white space depends on the rules of trimming, and tags have no marks for it.
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

// Source writes a tree, which must consist of Text, Print, If, For, Set and Macro without defaults, as package lower
// makes it.
func Source(body []Statement) string {
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

// plain reports whether a text can stand as it is: it holds nothing like a tag, and no rule of trimming changes it.
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

func (w *writer) body(body []Statement) {
	for _, s := range body {
		w.statement(s)
	}
}

func (w *writer) statement(s Statement) {
	switch s := s.(type) {
	case *Text:
		w.add(pieceText, s.Text)
	case *Print:
		if c, ok := s.X.(*Constant); ok {
			if text, ok := c.Value.(string); ok {
				w.add(pieceText, text)
				return
			}
		}
		w.add(piecePrint, "{{ "+spell(s.X)+" }}")
	case *If:
		for i, b := range s.Branches {
			w.tag("%s %s", []string{"if", "elif"}[min(i, 1)], spell(b.Test))
			w.body(b.Body)
		}
		if len(s.Otherwise) > 0 {
			w.tag("else")
			w.body(s.Otherwise)
		}
		w.tag("endif")
	case *For:
		test := ""
		if s.Test != nil {
			test = " if " + spell(s.Test)
		}
		w.tag("for %s in %s%s", strings.Trim(spell(s.Target), "[]"), spell(s.Iterable), test)
		w.body(s.Body)
		w.tag("endfor")
	case *Set:
		w.tag("set %s = %s", spell(s.Target), spell(s.Value))
	case *Macro:
		w.tag("macro %s(%s)", s.Definition.Name, strings.Join(s.Definition.Parameters, ", "))
		w.body(s.Definition.Body)
		w.tag("endmacro")
	default:
		panic(fmt.Sprintf("internal error: a %T is not lowered", s))
	}
}

// spell writes an expression.
func spell(x Expression) string {
	switch x := x.(type) {
	case *Constant:
		switch v := x.Value.(type) {
		case nil:
			return "none"
		case string:
			return Quote(v)
		default:
			return fmt.Sprint(v)
		}
	case *Name:
		return x.ID
	case *NamespaceTarget:
		return x.ID + "." + x.Attribute
	case *Tuple:
		return spellList(x.Items)
	case *List:
		return spellList(x.Items)
	case *Dict:
		items := make([]string, len(x.Keys))
		for i := range x.Keys {
			items[i] = spell(x.Keys[i]) + ": " + spell(x.Values[i])
		}
		return "{ " + strings.Join(items, ", ") + " }" // two brackets together would end the tag
	case *Unary:
		if x.Operator == "not" {
			return "(not " + spell(x.X) + ")"
		}
		return "(" + x.Operator + spell(x.X) + ")"
	case *Binary:
		return "(" + spell(x.X) + " " + x.Operator + " " + spell(x.Y) + ")"
	case *Concat:
		parts := make([]string, len(x.Parts))
		for i, part := range x.Parts {
			parts[i] = spell(part)
		}
		return "(" + strings.Join(parts, " ~ ") + ")"
	case *Comparison:
		s := spell(x.First)
		for _, o := range x.Rest {
			s += " " + o.Operator + " " + spell(o.X)
		}
		return "(" + s + ")"
	case *Conditional:
		return "(" + spell(x.Yes) + " if " + spell(x.Test) + " else " + spell(x.No) + ")"
	case *Attribute:
		return spell(x.X) + "." + x.Name
	case *Item:
		return spell(x.X) + "[" + spell(x.Key) + "]"
	case *Slice:
		s := spell(x.X) + "["
		if x.Start != nil {
			s += spell(x.Start)
		}
		s += ":"
		if x.Stop != nil {
			s += spell(x.Stop)
		}
		if x.Step != nil {
			s += ":" + spell(x.Step)
		}
		return s + "]"
	case *Call:
		return spell(x.Function) + "(" + spellArguments(x.Arguments) + ")"
	case *Filter:
		s := "(" + spell(x.X) + "|" + x.Name
		if a := spellArguments(x.Arguments); a != "" {
			s += "(" + a + ")"
		}
		return s + ")"
	case *Test:
		return "(" + spell(x.X) + " is " + x.Name + ")"
	}
	panic(fmt.Sprintf("internal error: a %T is not lowered", x))
}

func spellList(items []Expression) string {
	list := make([]string, len(items))
	for i, x := range items {
		list[i] = spell(x)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func spellArguments(a Arguments) string {
	var list []string
	for _, x := range a.Positional {
		list = append(list, spell(x))
	}
	for _, k := range a.Keyword {
		list = append(list, k.Name+"="+spell(k.X))
	}
	return strings.Join(list, ", ")
}

// Quote writes a string literal, with only those escapes that every reader of templates knows.
func Quote(s string) string {
	quote := "'"
	if strings.Contains(s, quote) && !strings.Contains(s, `"`) {
		quote = `"`
	}
	return quote + strings.NewReplacer(`\`, `\\`, quote, `\`+quote, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s) + quote
}
