package template_test

import (
	"encoding/json"
	"strings"
)

// Variables makes the variables of a template as a JSON object.
func (g *Random) Variables() string {
	o := []string{
		`"messages": ` + g.array(1, 5, g.message),
		`"tools": ` + g.either(30, "null", g.array(0, 3, g.tool)),
		`"people": ` + g.array(0, 4, g.person),
		`"bos_token": "<s>", "eos_token": "</s>", "none_value": null, "e": [], "o": {}, "zero": 0, "empty": ""`,
		`"n": ` + g.number(0, 9), `"negative": -` + g.number(1, 30), `"f": ` + g.fractionValue(), `"t": ` + g.words("true false"),
		`"s": ` + g.textValue(), `"u": ` + g.textValue(), `"text": ` + g.textValue(), `"html": ` + g.textValue(),
		`"l": ` + g.array(0, 5, func() string { return g.number(0, 9) }), `"words": ` + g.array(0, 5, g.textValue),
		`"d": ` + g.object(2), `"mixed": ` + g.jsonValue(3),
	}
	for _, id := range []string{"add_generation_prompt", "enable_thinking"} {
		if g.chance(70) {
			o = append(o, `"`+id+`": `+g.words("true false"))
		}
	}
	return "{" + strings.Join(o, ", ") + "}"
}

func (g *Random) either(percent int, a, b string) string {
	if g.chance(percent) {
		return a
	}
	return b
}

func (g *Random) array(low, beyond int, element func() string) string {
	var items []string
	for range low + g.n(beyond-low) {
		items = append(items, element())
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (g *Random) textValue() string {
	if g.Plain {
		return g.pick(`""`, `"a"`, `"Hello World"`, `" x "`, `"line one\n  line two\n\nline four\n"`, `"user"`, `"b"`, `"<think>\nq\n</think>\n\nanswer"`, `"12"`, `"a,b,,c"`, `"it's"`, `"{{ x }}"`)
	}
	s := g.pick("", "a", "Hello World", " x ", "line one\n  line two\n\nline four\n",
		"\u00dcn\u00efc\u00f6d\u00e9 \u00df \u03a3\u03b1\u03c2 \U0001F389", "<b>\"x\" & 'y'</b>", "a\u2028b\x1cc\u00a0d\te",
		"user", "b", "A",
		"<think>\nq\n</think>\n\nanswer", "12", "3.5", "it's", "\\ \" '", "\x01\x7f\u0080", "\u01c5 \u0130\u0131 \ufb03", "a,b,,c",
		"tab\tand\r\nend\r", "e\u0301", "\u200d\ufeff", "{{ x }}", "0x1F", "-0", "\u00b2\u0664")
	b, err := json.Marshal(s)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return string(b)
}

func (g *Random) fractionValue() string {
	if g.Plain {
		return g.number(0, 9)
	}
	return g.words("2.5 0.1 1e16 1e15 -0.0 1e-7 100.0 1e22 123456789.123 1.0 -3.5 5e-324 1.7976931348623157e308")
}

// jsonValue is any value.
func (g *Random) jsonValue(depth int) string {
	switch n := g.n(8); {
	case n == 0 && depth > 0:
		return g.object(depth - 1)
	case n == 1 && depth > 0:
		return g.array(0, 4, func() string { return g.jsonValue(depth - 1) })
	case n == 2:
		return "null"
	case n == 3:
		return g.words("true false")
	case n == 4:
		return g.fractionValue()
	case n == 5:
		return g.words("0 1 -1 7 42 9007199254740993 -9223372036854775808")
	}
	return g.textValue()
}

func (g *Random) object(depth int) string {
	var items []string
	for _, k := range []string{"b", "a", "items", "content", "name", "B", "role", "1", "get", "\u00e9"} {
		if g.chance(30) {
			items = append(items, `"`+k+`": `+g.jsonValue(depth))
		}
	}
	g.rng.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	return "{" + strings.Join(items, ", ") + "}"
}

func (g *Random) message() string {
	items := []string{`"role": "` + g.words("system user assistant tool user assistant") + `"`}
	form := g.n(8)
	if g.Plain {
		form = 7
	}
	switch form {
	case 0:
	case 1:
		items = append(items, `"content": null`)
	case 2:
		items = append(items, `"content": `+g.array(0, 3, func() string {
			return g.pick(`{"type": "text", "text": `+g.textValue()+`}`, `{"type": "image"}`)
		}))
	default:
		items = append(items, `"content": `+g.textValue())
	}
	if g.chance(20) {
		items = append(items, `"tool_calls": `+g.array(0, 3, func() string {
			return `{"type": "function", "function": {"name": "f", "arguments": ` + g.either(30, g.textValue(), g.object(1)) + `}}`
		}))
	}
	if g.chance(15) {
		items = append(items, `"reasoning_content": `+g.textValue())
	}
	if g.chance(15) {
		items = append(items, `"name": `+g.textValue())
	}
	return "{" + strings.Join(items, ", ") + "}"
}

func (g *Random) tool() string {
	return `{"type": "function", "function": {"name": "f", "description": ` + g.textValue() + `, "parameters": {"type": "object", "properties": ` + g.object(2) + `, "required": ["a"]}}}`
}

func (g *Random) person() string {
	s := `{"name": ` + g.textValue() + `, "age": ` + g.number(20, 40)
	if g.chance(70) {
		s += `, "city": "` + g.words("X x y Y z") + `"`
	}
	if g.chance(60) {
		s += `, "tags": ` + g.array(0, 3, g.textValue)
	}
	return s + "}"
}
