package verify

// checks is the table of checks in the order in which they run: what is cheap and fundamental first.
var checks = []Check{
	layout{},
	coverage{},
	weights{},
	tokenizerParity{},
	templateParity{},
	graph{},
	layers{},
	sourceSane{},
	perplexity{},
	divergence{},
	decode{},
	positions{},
	activations{},
	golden{},
}

// structural checks, when they fail, make numbers about the package meaningless; cheap ones run all the same.
var (
	structural = map[string]bool{"layout": true}
	cheap      = map[string]bool{"coverage": true}
)

// Names lists the checks in order.
func Names() []string {
	var n []string
	for _, c := range checks {
		n = append(n, c.String())
	}
	return n
}
