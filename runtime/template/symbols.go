package template

import (
	"fmt"
	"maps"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// symbols are the names that a scope mentions, in all of its text, as the reference's compiler notes them: a name that
// it finds assigned before it finds it read has no value in the scope until then, and hides that of the variable which
// the caller of the template gave, also from the scopes within. jinja2: idtracking.py.
type symbols struct {
	parent *symbols
	hidden map[string]bool // by each name that is mentioned: whether it starts without a value
	stored map[string]bool
	before *symbols // in a branch of an if: what the scope mentions before it
	inner  []func() // visits the scopes within, when these names are complete
	err    *error
}

// markHidden gives each scope the names that it hides, those of the template itself are the result. The error is that
// of the reference for the filter of a set block with a name in its arguments that no scope around mentions.
func markHidden(body []statement) (hidden []string, err error) {
	(&symbols{err: &err}).visit(&hidden, nil, func(f *symbols) { f.statements(body) })
	return hidden, err
}

// visit visits a scope with its parameters, and then those within it.
func (f *symbols) visit(hidden *[]string, parameters []string, mention func(*symbols)) {
	f.hidden, f.stored = map[string]bool{}, map[string]bool{}
	for _, id := range parameters {
		f.hidden[id], f.stored[id] = false, true
	}
	mention(f)
	for _, id := range slices.Sorted(maps.Keys(f.hidden)) {
		if f.hidden[id] {
			*hidden = append(*hidden, id)
		}
	}
	for _, visit := range f.inner {
		visit()
	}
}

// within visits a scope when this one is complete.
func (f *symbols) within(hidden *[]string, parameters []string, mention func(*symbols)) {
	for f.before != nil {
		f = f.before
	}
	f.inner = append(f.inner, func() { (&symbols{parent: f, err: f.err}).visit(hidden, parameters, mention) })
}

func (f *symbols) knows(id string) bool {
	for ; f != nil; f = f.parent {
		if f.mentions(id) {
			return true
		}
	}
	return false
}

func (f *symbols) mentions(id string) bool {
	for ; f != nil; f = f.before {
		if _, ok := f.hidden[id]; ok {
			return true
		}
	}
	return false
}

func (f *symbols) stores(id string) bool {
	for ; f != nil; f = f.before {
		if f.stored[id] {
			return true
		}
	}
	return false
}

func (f *symbols) store(id string) {
	f.stored[id] = true
	if !f.mentions(id) {
		f.hidden[id] = !f.parent.knows(id)
	}
}

func (f *symbols) load(x any) {
	if n, ok := x.(*name); ok && !f.knows(n.id) {
		f.hidden[n.id] = false
	}
	if x != nil {
		children(x, f.load)
	}
}

// assign notes the names of a target; what has an attribute assigned is read.
func (f *symbols) assign(target expression) {
	switch t := target.(type) {
	case *name:
		f.store(t.id)
	case *namespaceTarget:
		f.load(&name{t.id})
	case *tupleLiteral:
		for _, x := range t.items {
			f.assign(x)
		}
	}
}

// branch notes what one branch mentions apart from the others.
func (f *symbols) branch(mention func(*symbols)) *symbols {
	b := &symbols{parent: f.parent, hidden: map[string]bool{}, stored: map[string]bool{}, before: f, err: f.err}
	mention(b)
	return b
}

// branches joins the branches of an if: what they assign may keep the value that it had before.
func (f *symbols) branches(list ...*symbols) {
	for _, b := range list {
		maps.Copy(f.hidden, b.hidden)
	}
	for _, b := range list {
		for id := range b.stored {
			if !f.stores(id) {
				f.hidden[id] = false
			}
		}
	}
	for _, b := range list {
		maps.Copy(f.stored, b.stored)
	}
}

// ifs notes an if, the first branch of n that is left.
func (f *symbols) ifs(branches []branch, otherwise []statement) {
	f.load(branches[0].test)
	body := f.branch(func(b *symbols) { b.statements(branches[0].body) })
	elifs := f.branch(func(b *symbols) {
		for _, elif := range branches[1:] {
			b.load(elif.test)
			b.branches(b.branch(func(b *symbols) { b.statements(elif.body) }))
		}
	})
	f.branches(body, elifs, f.branch(func(b *symbols) { b.statements(otherwise) }))
}

func (f *symbols) statements(body []statement) {
	for _, s := range body {
		f.statement(s)
	}
}

// statement notes names in the order of the reference's compiler.
func (f *symbols) statement(s statement) {
	switch n := s.(type) {
	case *printStatement:
		f.load(n.x)
	case *ifStatement:
		f.ifs(n.branches, n.otherwise)
	case *forStatement:
		f.load(n.iterable)
		parameters := []string{"loop"}
		stored(n, func(id string) { parameters = append(parameters, id) })
		f.within(&n.hidden, parameters, func(f *symbols) { f.statements(n.body) })
		f.within(&n.otherwiseHidden, nil, func(f *symbols) { f.statements(n.otherwise) })
	case *setStatement:
		f.load(n.value)
		f.assign(n.target)
	case *setBlock:
		f.assign(n.target)
		f.within(&n.hidden, nil, func(f *symbols) {
			f.statements(n.body)
			f.inner = append(f.inner, func() { f.filter(n) })
		})
	case *macroStatement:
		f.store(n.macro.name)
		f.macro(n.macro)
	case *callBlock:
		if n.call != nil {
			f.load(n.call)
		}
		f.macro(n.caller)
	case *filterBlock:
		f.load(n.filter)
		f.within(&n.hidden, nil, func(f *symbols) {
			f.statements(n.body)
			f.load(n.filter)
		})
	case *withStatement:
		for _, v := range n.values {
			f.load(v)
		}
		var parameters []string
		stored(n, func(id string) { parameters = append(parameters, id) })
		f.within(&n.hidden, parameters, func(f *symbols) { f.statements(n.body) })
	}
}

func (f *symbols) macro(m *macroDefinition) {
	f.within(&m.hidden, m.parameters, func(f *symbols) {
		for _, d := range m.defaults {
			f.load(d)
		}
		f.statements(m.body)
	})
}

// filter looks for the names in the filter of a set block, which the reference forgets to note.
func (f *symbols) filter(n *setBlock) {
	var each func(any)
	each = func(x any) {
		if id, ok := x.(*name); ok && !f.knows(id.id) && *f.err == nil {
			*f.err = &Error{Line: n.line, Kind: "AssertionError", Message: fmt.Sprintf("the filter of a set block reads %q, which nothing around mentions", id.id), err: tensor.ErrCorrupt}
		}
		children(x, each)
	}
	if n.filter != nil {
		each(n.filter)
	}
}
