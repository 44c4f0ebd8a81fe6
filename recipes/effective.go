package recipes

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Effective is the recipe as YAML with every default spelled out, always the same bytes for the same
// recipe. The sections map a section's name to its decoded options; sections of the recipe that are
// missing there are printed as they were written. Loading the result gives the same recipe again.
// Paths stay as they are written, relative to the directory of the recipe's own file. An option whose
// default is not the zero value must not be tagged omitempty, or a zero would come back as the default.
func Effective(r *Recipe, sections map[string]any) ([]byte, error) {
	n, err := r.effective(sections)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	writeYAML(&b, n, "")
	return []byte(b.String()), nil
}

// EffectiveJSON is Effective as one line of JSON, for a manifest. It can be loaded too.
func EffectiveJSON(r *Recipe, sections map[string]any) ([]byte, error) {
	n, err := r.effective(sections)
	if err != nil {
		return nil, err
	}
	return n.json(), nil
}

func (r *Recipe) effective(sections map[string]any) (*node, error) {
	all, err := nodeOf(r)
	if err != nil {
		return nil, fmt.Errorf("recipe %s: %w", r.Name, err)
	}
	byName := make(map[string]*node)
	for name, s := range r.Stages {
		if s.Present() {
			byName[name] = s.node
		}
	}
	for name, v := range sections {
		n, err := nodeOf(v)
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", name, err)
		}
		byName[name] = n
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = all.with(entry{key: name, value: byName[name]})
	}
	if len(r.Variants) > 0 {
		list := &node{kind: sequence}
		for _, v := range r.Variants {
			list.items = append(list.items, v.patch)
		}
		all = all.with(entry{key: "variants", value: list})
	}
	return all, nil
}

// writeYAML prints a mapping or a list of mappings in block style, everything else on one line. The
// caller has written the indent of the first line.
func writeYAML(b *strings.Builder, n *node, indent string) {
	for i, e := range n.entries {
		if i > 0 {
			b.WriteString(indent)
		}
		b.WriteString(quoteYAML(e.key) + ":")
		if e.value.block() {
			b.WriteString("\n" + indent + "  ")
			writeYAML(b, e.value, indent+"  ")
		} else {
			b.WriteString(" " + flowYAML(e.value) + "\n")
		}
	}
	for i, item := range n.items {
		if i > 0 {
			b.WriteString(indent)
		}
		b.WriteString("- ")
		writeYAML(b, item, indent+"  ")
	}
}

// block reports whether the value takes lines of its own.
func (n *node) block() bool {
	switch n.kind {
	case mapping:
		return len(n.entries) > 0
	case sequence:
		other := func(item *node) bool { return item.kind != mapping || len(item.entries) == 0 }
		return len(n.items) > 0 && !slices.ContainsFunc(n.items, other)
	}
	return false
}

func flowYAML(n *node) string {
	var parts []string
	switch n.kind {
	case null:
		return "null"
	case text:
		return quoteYAML(n.scalar)
	case sequence:
		for _, item := range n.items {
			parts = append(parts, flowYAML(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case mapping:
		for _, e := range n.entries {
			parts = append(parts, quoteYAML(e.key)+": "+flowYAML(e.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return n.scalar
}

// plainRE are strings that no YAML reader takes for anything else, but for the words below.
var plainRE = regexp.MustCompile(`^((\.{0,2}/)*[A-Za-z][A-Za-z0-9_./@+-]*|[1-9][0-9]*[KMGT]i?B)$`)

var yamlWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

func quoteYAML(s string) string {
	if plainRE.MatchString(s) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return quote(s)
}
