package stage

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
)

var updateDefaults = flag.Bool("update-compatibility", false, "accept changed defaults of recipes, which only a minor release may have")

// releases are directories with a recipe and a manifest of a former release; see docs/compatibility.md.
func releases(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("../../testdata/compatibility/*")
	if err != nil || len(dirs) == 0 {
		t.Fatal("no former release", err)
	}
	return dirs
}

// Recipes of former releases have the effect that they had there: all values, set or default, are the same.
func TestFormerRecipes(t *testing.T) {
	t.Parallel()
	for _, dir := range releases(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			r, err := recipes.LoadFile(filepath.Join(dir, "recipe.yaml"), Sections())
			if err != nil {
				t.Fatal(err)
			}
			all, err := r.Expand()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range all {
				x, err := New(r, pipeline.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				if err := x.Validate(t.Context()); err != nil {
					t.Fatal(err)
				}
				got, err := recipes.EffectiveJSON(r, x.Options.BySection())
				if err != nil {
					t.Fatal(err)
				}
				golden := filepath.Join(dir, r.Name+".json")
				if *updateDefaults {
					if err := os.WriteFile(golden, got, 0o666); err != nil {
						t.Fatal(err)
					}
				}
				for _, d := range changes(t, golden, got) {
					t.Errorf("%s: %s; if this release may change it, run with -update-compatibility and list it in the changelog", golden, d)
				}
			}
		})
	}
}

// changes lists the values of the JSON in a file that differ from those of got. What only got has is new, and no change.
func changes(t *testing.T, golden string, got []byte) (list []string) {
	t.Helper()
	b, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var was, is any
	if err := errors.Join(json.Unmarshal(b, &was), json.Unmarshal(got, &is)); err != nil {
		t.Fatal(err)
	}
	var compare func(path string, was, is any)
	compare = func(path string, was, is any) {
		if old, ok := was.(map[string]any); ok {
			if now, ok := is.(map[string]any); ok {
				for key, v := range old {
					compare(path+"."+key, v, now[key])
				}
				return
			}
		}
		if !reflect.DeepEqual(was, is) {
			list = append(list, fmt.Sprintf("%s was %v, is %v", strings.TrimPrefix(path, "."), was, is))
		}
	}
	compare("", was, is)
	return list
}

// Manifests of former releases are read, byte for byte, and the recipe in them can be run again.
func TestFormerManifests(t *testing.T) {
	t.Parallel()
	for _, dir := range releases(t) {
		b, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := manifest.Parse(b)
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		again, _, err := m.Seal()
		if err != nil || string(again) != string(b) {
			t.Errorf("%s: the manifest is written differently, %v", dir, err)
		}
		r, err := recipes.Load(m.Recipe, "manifest.json", Sections())
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		if _, err := New(r, pipeline.Limits{}); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A recipe of a later version of the format is refused by that, whatever else it has.
func TestLaterRecipe(t *testing.T) {
	t.Parallel()
	_, err := recipes.Load([]byte("version: 2\nname: x\nfuture: true\n"), "x.yaml", Sections())
	if e := (*recipes.Error)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), "must be 1, the only version this program reads, not 2") {
		t.Errorf("a recipe of version 2: %v", err)
	}
}
