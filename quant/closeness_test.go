package quant

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A chain promises what its weakest method does.
func TestChainCloseness(t *testing.T) {
	t.Parallel()
	let := NewOmniQuant()
	let.LET = false
	for _, c := range []struct {
		methods []Method
		want    Closeness
	}{
		{[]Method{RTN{}}, Closeness{}},
		{[]Method{NewAWQ(), RTN{}}, Closeness{Floats: Rewritten}},
		{[]Method{NewAWQ(), NewSearch()}, Closeness{Weights: Near, Floats: Rewritten, Factor: searchedFactor}},
		{[]Method{NewGPTQ()}, Closeness{Weights: Fitted}},
		{[]Method{let}, Closeness{Weights: Fitted}},
		{[]Method{NewOmniQuant()}, Closeness{Weights: Fitted, Floats: Rewritten}},
		{[]Method{RTN{}, NewDistill()}, Closeness{Weights: Fitted, Floats: Rewritten}},
		{[]Method{NewRotation(), NewGPTQ(), NewDistill()}, Closeness{Weights: Fitted, Floats: Turned}},
	} {
		chain, err := NewChain(c.methods)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, chain.Closeness()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.methods, diff)
		}
	}
}
