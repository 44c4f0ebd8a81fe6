package engine

import (
	"fmt"
	"strings"
)

// method calls a method of a text. An unknown method, missing arguments and any other type of value give an empty text;
// the arguments are not evaluated. Arguments that are not texts count as empty ones.
func (r *renderer) method(x *method) *value {
	v := r.eval(x.x)
	need, ok := methods[x.name]
	if v.kind != text || !ok || len(x.arguments) < need.least {
		return newText("")
	}
	var arguments []string
	for _, a := range x.arguments[:min(len(x.arguments), need.most)] {
		arguments = append(arguments, r.eval(a).text)
	}
	s := v.text
	r.step(1 + len(s)/64)
	first := need.absent
	if len(arguments) > 0 {
		first = arguments[0]
	}
	switch x.name {
	case "startswith":
		return newBool(strings.HasPrefix(s, first))
	case "endswith":
		return newBool(strings.HasSuffix(s, first))
	case "strip":
		return newText(stripRight(stripLeft(s, first), first))
	case "lstrip":
		return newText(stripLeft(s, first))
	case "rstrip":
		return newText(stripRight(s, first))
	case "split":
		return r.split(s, first)
	}
	return r.replace(s, first, arguments[1])
}

// methods are the numbers of arguments that a method needs and reads, and the default of the first.
var methods = map[string]struct {
	least, most int
	absent      string
}{
	"startswith": {1, 1, ""},
	"endswith":   {1, 1, ""},
	"split":      {0, 1, " "},
	"strip":      {0, 1, blanks},
	"lstrip":     {0, 1, blanks},
	"rstrip":     {0, 1, blanks},
	"replace":    {2, 2, ""},
}

// stripLeft removes bytes, not characters: it may remove a part of a character.
func stripLeft(s, bytes string) string {
	for s != "" && strings.IndexByte(bytes, s[0]) >= 0 {
		s = s[1:]
	}
	return s
}

func stripRight(s, bytes string) string {
	for s != "" && strings.IndexByte(bytes, s[len(s)-1]) >= 0 {
		s = s[:len(s)-1]
	}
	return s
}

// split cuts at every separator, by default at each blank.
func (r *renderer) split(s, separator string) *value {
	if separator == "" {
		panic(failure{fmt.Errorf("split at an empty text never ends: %w", ErrCrash)})
	}
	l := &value{kind: array}
	for {
		part, rest, found := strings.Cut(s, separator)
		r.step(valueSteps + len(part)/64)
		l.elements = append(l.elements, newText(part))
		if !found {
			return l
		}
		s = rest
	}
}

func (r *renderer) replace(s, from, to string) *value {
	if from == "" {
		return newText(s)
	}
	n := strings.Count(s, from)
	r.size(len(s) + n*(len(to)-len(from)))
	return newText(strings.ReplaceAll(s, from, to))
}
