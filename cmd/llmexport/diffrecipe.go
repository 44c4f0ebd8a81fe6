package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/internal/jsondoc"
)

// compareRecipes returns the options that differ between two recipes in JSON. A recipe that cannot be read has none: the manifest
// that contains it is compared all the same.
func compareRecipes(a, b []byte) []recipeDiff {
	inA, inB := recipeOptions(a), recipeOptions(b)
	list := []recipeDiff{}
	for _, path := range union(inA, inB) {
		if inA[path] != inB[path] {
			list = append(list, recipeDiff{path, inA[path], inB[path]})
		}
	}
	return list
}

// recipeOptions maps the paths of a recipe's values to the values.
func recipeOptions(recipe []byte) map[string]string {
	var tree any
	if err := jsondoc.Decode(recipe, &tree); err != nil {
		return nil
	}
	all := map[string]string{}
	collectOptions(all, "", tree)
	return all
}

func collectOptions(all map[string]string, path string, tree any) {
	switch x := tree.(type) {
	case map[string]any:
		for key, v := range x {
			collectOptions(all, strings.TrimPrefix(path+"."+key, "."), v)
		}
	case []any:
		if b, err := json.Marshal(x); err == nil && len(b) < 60 { // such as a list of backends
			all[path] = string(b)
			return
		}
		for i, v := range x {
			collectOptions(all, fmt.Sprintf("%s[%d]", path, i), v)
		}
	default:
		b, err := json.Marshal(x)
		if err == nil {
			all[path] = strings.Trim(string(b), `"`)
		}
	}
}
