package depcheck

import (
	"slices"
	"testing"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/verify"
)

func TestTables(t *testing.T) {
	for name, names := range map[string][]string{
		"quant.Methods":   quant.Methods(),
		"arch.ModelTypes": arch.ModelTypes(),
		"verify.Names":    verify.Names(),
		"stage.Sections":  stage.Sections(),
		"lower.Engines":   lower.Engines(),
		"recipes.Shipped": recipes.Shipped(),
	} {
		t.Run(name, func(t *testing.T) {
			if len(names) == 0 {
				t.Error("is empty")
			}
			sorted := slices.Sorted(slices.Values(names))
			if got := len(slices.Compact(sorted)); got != len(names) || slices.Contains(names, "") {
				t.Errorf("names are not unique or empty: %q", names)
			}
		})
	}
}

func TestMethodNames(t *testing.T) {
	for _, n := range quant.Methods() {
		e, err := quant.NewMethod(n)
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != n {
			t.Errorf("the method in the table as %s calls itself %s", n, e.Name())
		}
	}
}

// TestEngines: a recipe may name an engine only if lowering knows it.
func TestEngines(t *testing.T) {
	if !slices.Equal(recipes.Engines, lower.Engines()) {
		t.Errorf("recipes know %q, lowering %q", recipes.Engines, lower.Engines())
	}
}

// TestBackends: a recipe may name the backends that have a profile.
func TestBackends(t *testing.T) {
	if !slices.Equal(recipes.Backends, backends.ProfileNames()) {
		t.Errorf("recipes know %q, profiles are %q", recipes.Backends, backends.ProfileNames())
	}
	if !slices.Equal(recipes.SOCs, backends.SOCNames()) {
		t.Errorf("recipes know the GPUs %q, the profiles %q", recipes.SOCs, backends.SOCNames())
	}
}

// TestShippedRecipes: every recipe in the binary is one that the stages accept.
func TestShippedRecipes(t *testing.T) {
	for _, n := range recipes.Shipped() {
		t.Run(n, func(t *testing.T) {
			b, err := recipes.ReadShipped(n)
			if err != nil {
				t.Fatal(err)
			}
			r, err := recipes.Load(b, n+".yaml", stage.Sections())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stage.New(r, pipeline.Limits{}); err != nil {
				t.Error(err)
			}
		})
	}
}
