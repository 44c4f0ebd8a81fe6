//go:build transformers

package transformerstest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// family is what is tried on a model type.
type family struct {
	// base is the checkpoint of pipeline/arch/testdata that is changed, by default that of the model type's name. If there is
	// none, config gives a whole config, for which weights are made.
	base   string
	config func(t *testing.T) object
	// honours are changes that alter what the model computes.
	honours []object
	// refuses are changes that [arch.Describe] has to refuse.
	refuses []refusal
	// same are other ways to write the config.
	same []object
	// shapes are changes that need new weights.
	shapes []object
	// since is the oldest engine that packages can be made for, if that is not the oldest of all.
	since string
	// packages is how far packages may be from transformers, if that is not what the reference may be.
	packages bound
}

// refusal is a change, and what the error says of it.
type refusal struct {
	text   string
	change object
}

// families are the tables of all files, by model type.
func families(t *testing.T) map[string]family {
	t.Helper()
	all := map[string]family{}
	for _, table := range []map[string]family{denseFamilies, windowFamilies, expertFamilies, hybridFamilies, multimodalFamilies} {
		for modelType, f := range table {
			if _, twice := all[modelType]; twice {
				t.Fatal(modelType, " is in two tables")
			}
			all[modelType] = f
		}
	}
	return all
}

// open gives the checkpoint of a family.
func (f family) open(t *testing.T, modelType string) *checkpoint {
	t.Helper()
	if f.config != nil {
		return made(t, f.config(t))
	}
	if f.base == "" {
		return testdata(t, modelType)
	}
	return testdata(t, f.base)
}

// minMutations is how many changes of every family have to matter.
const minMutations = 5

// minShapes is how many other checkpoints of every family have to be right.
const minShapes = 3

// TestCovered: every model type has its table, enough is tried on it, or transformers has no such model.
func TestCovered(t *testing.T) {
	tables := families(t)
	for _, modelType := range arch.ModelTypes() {
		if modelType == "qwen2_5_omni" {
			continue // qwen2_5_omni_thinker as an object of another file
		}
		f, ok := tables[modelType]
		if ok == slices.Contains(slices.Collect(maps.Keys(twins)), modelType) {
			t.Errorf("%s needs a table or a twin", modelType)
		}
		if ok && (len(f.honours)+len(f.refuses) < minMutations || len(f.shapes) < minShapes) {
			t.Errorf("%s has %d mutations and %d shapes", modelType, len(f.honours)+len(f.refuses), len(f.shapes))
		}
		delete(tables, modelType)
	}
	for modelType := range tables {
		t.Errorf("there is no family %s", modelType)
	}
}

// TestMutations changes keys of configs: what a model computes follows them, or they are refused by name.
func TestMutations(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family, c *checkpoint) {
		honoured, refused := 0, 0
		for _, change := range f.honours {
			t.Run(text(change), func(t *testing.T) {
				r := c.run(t, change, 0)
				r.wantEqual(t)
				if r.changed <= r.bound.worst {
					t.Errorf("transformers computes the same as without the change (%.2g nats)", r.changed)
					return
				}
				honoured++
			})
		}
		for _, x := range f.refuses {
			t.Run(text(x.change), func(t *testing.T) {
				r := c.run(t, x.change, 0)
				if r.refusal == nil || !strings.Contains(r.refusal.Error(), x.text) {
					t.Fatalf("error %v, want %s (%.2g nats from transformers)", r.refusal, x.text, r.wrong)
				}
				// One that transformers ignores, or refuses too, is no mistake that could have been made.
				if r.changed > plainBound.worst {
					refused++
				}
			})
		}
		for _, change := range f.same {
			t.Run(text(change), func(t *testing.T) {
				r := c.run(t, change, 0)
				r.wantEqual(t)
				if r.changed > r.bound.worst {
					t.Errorf("transformers computes something else (%.2g nats)", r.changed)
				}
			})
		}
		if t.Logf("%d honoured, %d refused", honoured, refused); honoured+refused < minMutations && !t.Failed() {
			t.Errorf("%d mutations are less than %d", honoured+refused, minMutations)
		}
	})
}

// TestShapes makes checkpoints of other dimensions.
func TestShapes(t *testing.T) {
	eachFamily(t, func(t *testing.T, f family, c *checkpoint) {
		shapes := f.shapes
		for _, tied := range []bool{true, false} {
			shapes = append(slices.Clone(shapes), c.tied(tied))
		}
		for i, change := range shapes {
			t.Run(text(change), func(t *testing.T) {
				r := c.run(t, change, i+2)
				r.wantEqual(t)
			})
		}
	})
}

// eachFamily calls f for every family, side by side.
func eachFamily(t *testing.T, f func(t *testing.T, f family, c *checkpoint)) {
	all := families(t)
	for _, modelType := range slices.Sorted(maps.Keys(all)) {
		t.Run(modelType, func(t *testing.T) {
			t.Parallel()
			f(t, all[modelType], all[modelType].open(t, modelType))
		})
	}
}

// wantEqual demands that both compute, and the same.
func (r result) wantEqual(t *testing.T) {
	t.Helper()
	switch {
	case r.rejection != "":
		t.Fatalf("transformers: %s", r.rejection)
	case r.refusal != nil:
		t.Fatal(r.refusal)
	case !(r.wrong <= r.bound.mean && r.worst <= r.bound.worst):
		t.Errorf("%.2g nats from transformers, %.2g at the worst position (the change is worth %.2g)", r.wrong, r.worst, r.changed)
	}
}

// text is the name of a change.
func text(change object) string {
	b, err := json.Marshal(change)
	if err != nil {
		return fmt.Sprint(change)
	}
	return string(b)
}
