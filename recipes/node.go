package recipes

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	sequence
	mapping
)

// A node is one value of a recipe with its position. Nodes never change after they
// were read, so recipes and their variants share them.
type node struct {
	kind    kind
	at      position
	scalar  string  // text: the string; number and boolean: as JSON spells them
	items   []*node // of a sequence
	entries []entry // of a mapping, in the order written, keys unique
}

type entry struct {
	key   string
	at    position // of the key
	value *node
}

// String describes the value for a message about the expected value.
func (n *node) String() string {
	switch n.kind {
	case null:
		return "empty"
	case boolean:
		return n.scalar
	case number:
		return "the number " + n.scalar
	case text:
		return shorten(n.scalar)
	case sequence:
		return "a list"
	}
	return "a mapping"
}

func (n *node) errorf(path, format string, args ...any) error {
	return n.at.errorf(path, format, args...)
}

// get is the value of a key, nil if there is none or n is not a mapping.
func (n *node) get(key string) *node {
	if i := n.index(key); i >= 0 {
		return n.entries[i].value
	}
	return nil
}

func (n *node) index(key string) int {
	if n == nil {
		return -1
	}
	return slices.IndexFunc(n.entries, func(e entry) bool { return e.key == key })
}

// with is the mapping n with one value replaced or added.
func (n *node) with(e entry) *node {
	c := *n
	c.entries = slices.Clone(n.entries)
	if i := c.index(e.key); i >= 0 {
		c.entries[i] = e
	} else {
		c.entries = append(c.entries, e)
	}
	return &c
}

// without is the mapping n less one key.
func (n *node) without(key string) *node {
	c := *n
	c.entries = slices.DeleteFunc(slices.Clone(n.entries), func(e entry) bool { return e.key == key })
	return &c
}

// merge applies a patch to a value: mappings key by key, anything else as a whole.
func merge(base, patch *node) *node {
	if base.kind != mapping || patch.kind != mapping {
		return patch
	}
	merged := *base
	merged.entries = slices.Clone(base.entries)
	where := make(map[string]int, len(base.entries))
	for i, e := range base.entries {
		where[e.key] = i
	}
	for _, e := range patch.entries {
		if i, ok := where[e.key]; ok {
			merged.entries[i].value = merge(merged.entries[i].value, e.value)
		} else {
			merged.entries = append(merged.entries, e)
		}
	}
	return &merged
}

// A step is one part of a path: a key, or with an empty key an index.
type step struct {
	key   string
	index int
}

var stepRE = regexp.MustCompile(`^(?:\.?([A-Za-z_][A-Za-z0-9_-]*)|\[([0-9]{1,6})\])`)

// parsePath parses a path such as "overrides[1].match"; ok is false if the syntax is wrong.
func parsePath(path string) (steps []step, ok bool) {
	for rest := path; rest != ""; {
		m := stepRE.FindStringSubmatch(rest)
		// A dot stands between steps: never first, always before a key that is not first.
		if m == nil || m[1] != "" && strings.HasPrefix(m[0], ".") == (len(steps) == 0) {
			return nil, false
		}
		s := step{key: m[1]}
		if m[2] != "" {
			s.index, _ = strconv.Atoi(m[2])
		}
		steps, rest = append(steps, s), rest[len(m[0]):]
	}
	return steps, true
}

// follow descends along a path as far as the tree goes; found counts the steps taken.
func (n *node) follow(steps []step) (at *node, found int) {
	for _, s := range steps {
		next := n.get(s.key)
		if s.key == "" && s.index < len(n.items) {
			next = n.items[s.index]
		}
		if next == nil {
			break
		}
		n, found = next, found+1
	}
	return n, found
}

var wordRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// joinKey appends a key to a path; a key that could be mistaken for a path is quoted.
func joinKey(path, key string) string {
	switch {
	case !wordRE.MatchString(key):
		return path + "[" + shorten(key) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

func joinIndex(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// errorAt returns an *Error for the value at a path below n, whose own path is base. For a key that is missing
// at the top of a recipe, the position is the whole file.
func errorAt(file string, n *node, base, path, format string, args ...any) error {
	at := position{src: &source{name: file}}
	if n != nil {
		steps, _ := parsePath(path)
		if near, found := n.follow(steps); found > 0 || base != "" || len(steps) == 0 {
			at = near.at
		}
	}
	if base != "" && path != "" && path[0] != '[' {
		base += "."
	}
	return at.errorf(base+path, format, args...)
}
