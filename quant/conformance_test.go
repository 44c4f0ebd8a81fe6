package quant_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/quant/quanttest"
)

var update = flag.Bool("update", false, "rewrite testdata/digests.txt")

// methods are all of the table, and some with other options.
func methods(t *testing.T) map[string]quant.Method {
	all := map[string]quant.Method{
		"search one candidate": &quant.Search{Candidates: 1, Importance: quant.ImportanceUniform},
		"search weights":       &quant.Search{Candidates: 20, Importance: quant.ImportanceWeights},
		"search hessian":       &quant.Search{Candidates: 5, Importance: quant.ImportanceHessian},
		"search mixed":         &quant.Search{Candidates: 5, Importance: quant.ImportanceMixed},
		"hqq zero":             &quant.HQQ{P: 0.7, Beta: 10, Growth: 1.01, Iterations: 20},
		"hqq robust":           &quant.HQQ{P: 0.4, Beta: 1e4, Growth: 1.5, Iterations: 7, Scale: true},
	}
	for _, name := range quant.Methods() {
		m, err := quant.NewMethod(name)
		if err != nil {
			t.Fatal(err)
		}
		if m.Name() != name {
			t.Errorf("the method %s calls itself %s", name, m.Name())
		}
		all[name] = m
	}
	return all
}

// Every method keeps its promises.
func TestMethods(t *testing.T) {
	t.Parallel()
	// quanttest tries fewer forms if testing.Short().
	for name, m := range methods(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quanttest.Run(t, m)
		})
	}
	if _, err := quant.NewMethod("magic"); err == nil || !strings.Contains(err.Error(), "rtn") {
		t.Errorf("unknown method: %v", err)
	}
}

// The digests pin codes, terms, scales and rotations, on every architecture and for every tier of kernels.
func TestMethodDigests(t *testing.T) {
	t.Parallel()
	const file = "testdata/digests.txt"
	var got strings.Builder
	all := methods(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d, err := quanttest.Digest(all[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d != "" {
			fmt.Fprintf(&got, "%s  %s\n", d, name)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s is old; run go test ./quant -run TestMethodDigests -update (-file +methods):\n%s", file, diff)
	}
}
