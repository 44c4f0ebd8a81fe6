package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
)

// printPlans prints plans as printJSON would print {"plans": [...]}. It writes tensors one by one: a mixture of experts
// has tens of thousands, and their JSON would need more memory than the rest of the plan.
func (t *tool) printPlans(plans []*planned) error {
	w := bufio.NewWriterSize(t.stdout, 1<<16)
	if _, err := w.WriteString("{\n  \"plans\": ["); err != nil {
		return err
	}
	for i, p := range plans {
		if i > 0 {
			w.WriteByte(',')
		}
		w.WriteString("\n    ")
		if err := p.writeJSON(w, "    "); err != nil {
			return err
		}
	}
	w.WriteString("\n  ]\n}\n")
	return w.Flush()
}

// writeJSON writes a plan, with indent before every line but the first.
func (p *planned) writeJSON(w io.Writer, indent string) error {
	const none = `"tensors": []` // quotes inside a string would be escaped
	rest := *p
	rest.Tensors = []plannedTensor{}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent(indent, "  ")
	if err := e.Encode(&rest); err != nil {
		return err
	}
	head, tail, ok := bytes.Cut(bytes.TrimSuffix(b.Bytes(), []byte("\n")), []byte(none))
	if !ok {
		panic("internal error: a plan without tensors")
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	line := append(make([]byte, 0, 1<<10), `"tensors": [`...)
	for i := range p.Tensors {
		if i > 0 {
			line = append(line, ',')
		}
		line = p.Tensors[i].appendJSON(append(append(line, '\n'), indent...), indent)
		if _, err := w.Write(line); err != nil {
			return err
		}
		line = line[:0]
	}
	if len(p.Tensors) > 0 {
		line = append(append(append(line, '\n'), indent...), "  "...)
	}
	if _, err := w.Write(append(line, ']')); err != nil {
		return err
	}
	_, err := w.Write(tail)
	return err
}

// appendJSON appends the output of json.Encoder for t, two levels deeper than indent.
func (t *plannedTensor) appendJSON(b []byte, indent string) []byte {
	inner := "\n" + indent + "      "
	b = append(b, "    {"...)
	b = appendText(append(append(b, inner...), `"name": `...), t.Name)
	b = appendText(append(append(append(b, ','), inner...), `"op": `...), t.Op)
	b = append(append(append(b, ','), inner...), `"shape": [`...)
	for i, n := range t.Shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(append(b, inner...), "  "...), n, 10)
	}
	if len(t.Shape) > 0 {
		b = append(b, inner...)
	}
	b = appendText(append(append(append(b, "],"...), inner...), `"spec": `...), t.Spec)
	b = strconv.AppendInt(append(append(append(b, ','), inner...), `"offset": `...), t.Offset, 10)
	b = strconv.AppendInt(append(append(append(b, ','), inner...), `"bytes": `...), t.Bytes, 10)
	return append(append(append(append(b, '\n'), indent...), "    "...), '}')
}

// appendText appends s as a JSON string.
func appendText(b []byte, s string) []byte {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		return append(append(append(b, '"'), s...), '"')
	}
	var q bytes.Buffer
	e := json.NewEncoder(&q)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic("internal error: " + err.Error()) // strings can always be encoded
	}
	return append(b, bytes.TrimSuffix(q.Bytes(), []byte("\n"))...)
}
