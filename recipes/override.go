package recipes

import (
	"slices"
	"strings"
)

// override returns the tree with the value at the path of "path=value" replaced. Missing mappings along the path are
// added; their keys are checked with the rest of the recipe.
func override(root *node, assignment string) (*node, error) {
	src := &source{name: "--set " + assignment}
	at := position{src: src}
	path, value, ok := strings.Cut(assignment, "=")
	steps, valid := parsePath(path)
	if !ok || !valid || len(steps) == 0 || steps[0].key == "" {
		return nil, at.errorf("", "must be path=value, such as quantize.bits=8 or publish[0].dir=out")
	}
	if len(value) > maxBytes || len(steps) >= maxDepth {
		return nil, at.errorf("", "the override is too long")
	}
	n, err := parse(src, value, maxDepth-len(steps))
	if err != nil {
		return nil, err
	}
	if n == nil {
		n = &node{}
	}
	return set(root, steps, n.moved(at), 0)
}

// moved is the tree with every position replaced.
func (n *node) moved(at position) *node {
	c := *n
	c.at = at
	c.items = slices.Clone(n.items)
	for i := range c.items {
		c.items[i] = c.items[i].moved(at)
	}
	c.entries = slices.Clone(n.entries)
	for i, e := range c.entries {
		c.entries[i] = entry{e.key, at, e.value.moved(at)}
	}
	return &c
}

// set returns n with the value put at the steps from the done-th on.
func set(n *node, steps []step, value *node, done int) (*node, error) {
	if done == len(steps) {
		return value, nil
	}
	s := steps[done]
	if n == nil || n.kind == null {
		n = &node{kind: mapping, at: value.at}
		if s.key == "" {
			n.kind = sequence
		}
	}
	here := formatSteps(steps[:done])
	if s.key != "" {
		if n.kind != mapping {
			return nil, value.errorf(here, "is %s and has no key %s", n, s.key)
		}
		v, err := set(n.get(s.key), steps, value, done+1)
		if err != nil {
			return nil, err
		}
		return n.with(entry{s.key, value.at, v}), nil
	}
	if n.kind != sequence {
		return nil, value.errorf(here, "is %s and has no index", n)
	}
	if s.index > len(n.items) {
		return nil, value.errorf(here, "has length %d, so the next index is %[1]d, not %[2]d", len(n.items), s.index)
	}
	c := *n
	c.items = append(slices.Clone(n.items), nil)
	v, err := set(c.items[s.index], steps, value, done+1)
	if err != nil {
		return nil, err
	}
	c.items[s.index] = v
	if s.index < len(n.items) {
		c.items = c.items[:len(n.items)]
	}
	return &c, nil
}

func formatSteps(steps []step) string {
	path := ""
	for _, s := range steps {
		if s.key != "" {
			path = joinKey(path, s.key)
		} else {
			path = joinIndex(path, s.index)
		}
	}
	return path
}
