package syntax

import (
	"maps"
	"slices"
)

// symbols are the names that a scope mentions anywhere in its text, as jinja2's compiler records them: a name that is
// assigned before it is read has no value in the scope until then, and hides the variable of that name that the caller
// of the template passed, also from inner scopes. jinja2: idtracking.py.
type symbols struct {
	parent *symbols
	hidden map[string]bool // by each name that is mentioned: whether it starts without a value
	stored map[string]bool
	before *symbols // in a branch of an if: what the scope mentions before it
	inner  []func() // visits the inner scopes, when these names are complete
}

// markHidden fills in the names that each scope hides. It panics with the error of jinja2 for the filter of a set block
// with a name in its arguments that no scope around it mentions.
func markHidden(t *Template) {
	(&symbols{}).visit(&t.Hidden, nil, func(f *symbols) { f.statements(t.Body) })
}

// visit visits a scope with its parameters, and then the inner ones.
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

// within visits an inner scope when this one is complete.
func (f *symbols) within(hidden *[]string, parameters []string, mention func(*symbols)) {
	for f.before != nil {
		f = f.before
	}
	f.inner = append(f.inner, func() { (&symbols{parent: f}).visit(hidden, parameters, mention) })
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
	if n, ok := x.(*Name); ok && !f.knows(n.ID) {
		f.hidden[n.ID] = false
	}
	if x != nil {
		Children(x, f.load)
	}
}

// assign notes the names of a target; assigning an attribute reads its owner.
func (f *symbols) assign(target Expression) {
	switch t := target.(type) {
	case *Name:
		f.store(t.ID)
	case *NamespaceTarget:
		f.load(&Name{t.ID})
	case *Tuple:
		for _, x := range t.Items {
			f.assign(x)
		}
	}
}

// branch notes the names of one branch, apart from those of the others.
func (f *symbols) branch(mention func(*symbols)) *symbols {
	b := &symbols{parent: f.parent, hidden: map[string]bool{}, stored: map[string]bool{}, before: f}
	mention(b)
	return b
}

// branches joins the branches of an if: a name that one of them assigns may keep its earlier value.
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

// ifs notes an if.
func (f *symbols) ifs(branches []Branch, otherwise []Statement) {
	f.load(branches[0].Test)
	body := f.branch(func(b *symbols) { b.statements(branches[0].Body) })
	elifs := f.branch(func(b *symbols) {
		for _, elif := range branches[1:] {
			b.load(elif.Test)
			b.branches(b.branch(func(b *symbols) { b.statements(elif.Body) }))
		}
	})
	f.branches(body, elifs, f.branch(func(b *symbols) { b.statements(otherwise) }))
}

func (f *symbols) statements(body []Statement) {
	for _, s := range body {
		f.statement(s)
	}
}

// statement notes names in the order of jinja2's compiler.
func (f *symbols) statement(s Statement) {
	switch n := s.(type) {
	case *Print:
		f.load(n.X)
	case *If:
		f.ifs(n.Branches, n.Otherwise)
	case *For:
		f.load(n.Iterable)
		parameters := []string{"loop"}
		stored(n, func(id string) { parameters = append(parameters, id) })
		f.within(&n.Hidden, parameters, func(f *symbols) { f.statements(n.Body) })
		f.within(&n.OtherwiseHidden, nil, func(f *symbols) { f.statements(n.Otherwise) })
	case *Set:
		f.load(n.Value)
		f.assign(n.Target)
	case *SetBlock:
		f.assign(n.Target)
		f.within(&n.Hidden, nil, func(f *symbols) {
			f.statements(n.Body)
			f.inner = append(f.inner, func() { f.filter(n) })
		})
	case *Macro:
		f.store(n.Definition.Name)
		f.macro(n.Definition)
	case *CallBlock:
		if n.Call != nil {
			f.load(n.Call)
		}
		f.macro(n.Caller)
	case *FilterBlock:
		f.load(n.Filter)
		f.within(&n.Hidden, nil, func(f *symbols) {
			f.statements(n.Body)
			f.load(n.Filter)
		})
	case *With:
		for _, v := range n.Values {
			f.load(v)
		}
		var parameters []string
		stored(n, func(id string) { parameters = append(parameters, id) })
		f.within(&n.Hidden, parameters, func(f *symbols) { f.statements(n.Body) })
	}
}

func (f *symbols) macro(m *Definition) {
	f.within(&m.Hidden, m.Parameters, func(f *symbols) {
		for _, d := range m.Defaults {
			f.load(d)
		}
		f.statements(m.Body)
	})
}

// filter checks the names in the filter of a set block, which jinja2's compiler fails to record.
func (f *symbols) filter(n *SetBlock) {
	var each func(any)
	each = func(x any) {
		if id, ok := x.(*Name); ok && !f.knows(id.ID) {
			e := corrupt(n.Line, "the filter of a set block reads %q, which nothing around mentions", id.ID)
			e.Kind = "AssertionError"
			panic(e)
		}
		Children(x, each)
	}
	if n.Filter != nil {
		each(n.Filter)
	}
}
