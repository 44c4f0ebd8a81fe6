package template

// frame is a scope of names as the reference's compiler sees it: the names that it mentions, in all of its text.
type frame struct {
	mentioned map[string]bool
	parent    *frame
	inner     []func() // visits the scopes within it, when its own names are complete
}

func (f *frame) knows(id string) bool {
	for ; f != nil; f = f.parent {
		if f.mentioned[id] {
			return true
		}
	}
	return false
}

// markFresh finds the block assignments {% set x %}...{% endset %} whose x nothing mentions before. The reference's
// compiler takes such an x for a local variable that has no value yet, so that the block does not see the variable
// of that name that the caller of the template gave.
func markFresh(body []statement) { visitFrame(body, nil) }

func visitFrame(body []statement, parent *frame, parameters ...string) {
	f := &frame{mentioned: map[string]bool{}, parent: parent}
	for _, id := range parameters {
		f.mentioned[id] = true
	}
	f.statements(body, false)
	for _, visit := range f.inner {
		visit()
	}
}

func (f *frame) later(body []statement, parameters ...string) {
	f.inner = append(f.inner, func() { visitFrame(body, f, parameters...) })
}

func (f *frame) load(x any) {
	if n, ok := x.(*name); ok {
		f.mentioned[n.id] = true
	}
	if x != nil {
		children(x, f.load)
	}
}

func (f *frame) store(node any) {
	stored(node, func(id string) { f.mentioned[id] = true })
}

// statements notes names in the order of the compiler. Of what follows within a branch of an if it does not know
// whether it is reached.
func (f *frame) statements(body []statement, branch bool) {
	for _, s := range body {
		switch n := s.(type) {
		case *printStatement:
			f.load(n.x)
		case *ifStatement:
			for _, b := range n.branches {
				f.load(b.test)
				f.statements(b.body, true)
			}
			f.statements(n.otherwise, true)
		case *forStatement:
			f.load(n.iterable)
			parameters := []string{"loop"}
			stored(n, func(id string) { parameters = append(parameters, id) })
			f.later(n.body, parameters...)
			f.later(n.otherwise)
		case *setStatement:
			f.load(n.value)
			f.store(n)
		case *setBlock:
			stored(n, func(id string) {
				if !branch && !f.knows(id) {
					n.fresh = id
				}
			})
			f.store(n)
			f.later(n.body)
		case *macroStatement:
			f.store(n)
			f.later(n.macro.body, n.macro.parameters...)
		case *callBlock:
			if n.call != nil {
				f.load(n.call)
			}
			f.later(n.caller.body, n.caller.parameters...)
		case *filterBlock:
			f.load(n.filter)
			f.later(n.body)
		case *withStatement:
			for _, v := range n.values {
				f.load(v)
			}
			var parameters []string
			stored(n, func(id string) { parameters = append(parameters, id) })
			f.later(n.body, parameters...)
		}
	}
}
