package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// whiteSpace is \s, spelled out because dialects differ.
const whiteSpace = "\\t-\\r \u0085\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000"

// escape rewrites a backslash and what follows; inside a class without brackets around it.
func (r *regexRewriter) escape(inClass bool) error {
	if r.pos+1 >= len(r.in) {
		return r.truncated()
	}
	c := r.in[r.pos+1]
	var set string
	switch c {
	case 's':
		set = whiteSpace
	case 'd':
		set = property("Nd")
	case 'S', 'D':
		if inClass {
			return r.refuse("negated escape in a class")
		}
		set = "^" + map[byte]string{'S': whiteSpace, 'D': property("Nd")}[c]
	case 'p', 'P':
		end := strings.IndexByte(r.in[r.pos:], '}')
		if end < 0 || r.in[r.pos+2] != '{' {
			return r.refuse("property")
		}
		name := r.in[r.pos+3 : r.pos+end]
		if set = property(name); set == "" {
			return r.refuse(fmt.Sprintf("property %q", name))
		}
		if c == 'P' {
			if inClass {
				return r.refuse("negated property in a class")
			}
			set = "^" + set
		}
		r.pos += end - 1
	default:
		ch, ok := plainEscape(c)
		if !ok {
			return r.refuse(fmt.Sprintf(`escape \%c`, c))
		}
		set = quoteClass(ch)
	}
	r.pos += 2
	if !inClass {
		set = "[" + set + "]"
	}
	r.out.WriteString(set)
	return nil
}

// property is the content of a class that stands for a Unicode category or script, or empty for an unknown one.
func property(name string) string {
	_, category := unicode.Categories[name]
	_, script := unicode.Scripts[name]
	if !category && !script {
		return ""
	}
	var b strings.Builder
	b.WriteString(`\p{` + name + `}`)
	for _, key := range slices.Sorted(maps.Keys(younger)) {
		if key != name && !(len(name) == 1 && len(key) == 2 && key[0] == name[0]) {
			continue
		}
		for _, r := range younger[key].R32 {
			b.WriteString(quoteClass(rune(r.Lo)) + "-" + quoteClass(rune(r.Hi)))
		}
	}
	return b.String()
}
