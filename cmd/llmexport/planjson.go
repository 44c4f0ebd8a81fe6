package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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
	tensors := "\"tensors\": ["
	var tensor bytes.Buffer // head and tail are parts of b
	e = json.NewEncoder(&tensor)
	e.SetEscapeHTML(false)
	e.SetIndent(indent+"    ", "  ")
	for i := range p.Tensors {
		tensor.Reset()
		if err := e.Encode(&p.Tensors[i]); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n%s    %s", tensors, indent, bytes.TrimSuffix(tensor.Bytes(), []byte("\n"))); err != nil {
			return err
		}
		tensors = ","
	}
	end := "\n" + indent + "  ]"
	if len(p.Tensors) == 0 {
		end = tensors + "]"
	}
	if _, err := io.WriteString(w, end); err != nil {
		return err
	}
	_, err := w.Write(tail)
	return err
}
