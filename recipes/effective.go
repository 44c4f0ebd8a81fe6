package recipes

import (
	"fmt"
	"maps"
	"slices"
)

// EffectiveJSON is the recipe as one line of JSON with every default spelled out, always the same bytes for the same
// recipe. The sections map a section's name to its decoded options; sections of the recipe that are missing there are
// printed as they were written. Loading the result gives the same recipe again. Paths are not changed; they are relative to the
// directory of the recipe's file. An option whose default is not the zero value must not be tagged omitempty, or a zero would
// be loaded as the default.
func EffectiveJSON(r *Recipe, sections map[string]any) ([]byte, error) {
	n, err := r.effective(sections)
	if err != nil {
		return nil, err
	}
	return n.json(), nil
}

func (r *Recipe) effective(sections map[string]any) (*node, error) {
	all, err := nodeOf(r)
	if err != nil {
		return nil, fmt.Errorf("recipe %s: %w", r.Name, err)
	}
	byName := make(map[string]*node)
	for name, s := range r.Stages {
		if s.Present() {
			byName[name] = s.node
		}
	}
	for name, v := range sections {
		n, err := nodeOf(v)
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", name, err)
		}
		byName[name] = n
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = all.with(entry{key: name, value: byName[name]})
	}
	if len(r.Variants) > 0 {
		list := &node{kind: sequence}
		for _, v := range r.Variants {
			list.items = append(list.items, v.patch)
		}
		all = all.with(entry{key: "variants", value: list})
	}
	return all, nil
}
