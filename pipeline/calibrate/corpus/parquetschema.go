package corpus

import (
	"github.com/parquet-go/parquet-go/format"
)

// node is an element of the schema of a Parquet file.
type node struct {
	name     string
	children []*node
	leaf     *leaf // of a column that has values
}

// leaf is a column with values.
type leaf struct {
	index      int // in a row group
	text       bool
	optional   bool
	defs, reps int // highest levels
}

// newSchema builds the tree from the list in the file, which has every element before its children.
func newSchema(list []format.SchemaElement) (*node, error) {
	leaves := 0
	var build func(depth, defs, reps int) (*node, bool)
	build = func(depth, defs, reps int) (*node, bool) {
		if len(list) == 0 || depth > maxNesting {
			return nil, false
		}
		e := &list[0]
		list = list[1:]
		optional := e.RepetitionType.Valid && e.RepetitionType.V == format.Optional
		repeated := e.RepetitionType.Valid && e.RepetitionType.V == format.Repeated
		if depth > 0 && (optional || repeated) {
			defs++
		}
		if depth > 0 && repeated {
			reps++
		}
		n := &node{name: e.Name}
		if e.Type.Valid {
			n.leaf = &leaf{leaves, e.Type.V == format.ByteArray, optional, defs, reps}
			leaves++
			return n, true
		}
		if !e.NumChildren.Valid {
			return nil, false
		}
		for range e.NumChildren.V {
			c, ok := build(depth+1, defs, reps)
			if !ok {
				return nil, false
			}
			n.children = append(n.children, c)
		}
		return n, true
	}
	root, ok := build(0, 0, 0)
	if !ok || len(list) > 0 || root.leaf != nil {
		return nil, corrupt("parquet: damaged schema")
	}
	return root, nil
}

// child is the element of that name, or nil.
func (n *node) child(name string) *node {
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	return nil
}
