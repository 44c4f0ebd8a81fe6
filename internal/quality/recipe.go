package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// wanted is a package to make.
type wanted struct {
	name string
	// quantize holds the keys of the recipe's section that set the package apart.
	quantize map[string]any
}

// packages lists one package for every budget and storage form.
func packages(budgets, specs []string) ([]wanted, error) {
	var list []wanted
	for _, b := range budgets {
		size, err := recipes.ParseSize(b)
		if err != nil {
			return nil, fmt.Errorf("-budget %s: %w", b, err)
		}
		list = append(list, wanted{fmt.Sprintf("budget-%d", int64(size)), map[string]any{"budget": map[string]any{"bytes": int64(size)}}})
	}
	for _, text := range specs {
		s, err := quant.ParseSpec(text)
		if err != nil {
			return nil, fmt.Errorf("-spec %s: %w", text, err)
		}
		q := map[string]any{"bits": s.Bits}
		if s.Bits != 16 {
			q["symmetric"], q["block"] = s.Symmetric, any(s.Block)
			if s.Block == quant.WholeRow {
				q["block"] = "row"
			}
			if s.Scale == tensor.F32 {
				q["scale"] = "fp32"
			}
		}
		list = append(list, wanted{s.String(), q})
	}
	seen := map[string]bool{}
	for _, w := range list {
		if seen[w.name] {
			return nil, fmt.Errorf("%s is wanted twice", w.name)
		}
		seen[w.name] = true
	}
	if len(list) == 0 {
		return nil, errors.New("give -budget or -spec")
	}
	return list, nil
}

// dir is where the package will lie.
func (s *study) dir(w wanted) string { return filepath.Join(s.out, "packages", w.name) }

// writeRecipe writes the recipe of a package, in JSON, which is YAML. Verification stays on because it decides how
// activations are quantized, but its limits are out of reach: bad packages belong into the table, too.
func (s *study) writeRecipe(w wanted) (string, error) {
	source, err := filepath.Abs(s.checkpoint)
	if err != nil {
		return "", err
	}
	place, err := filepath.Abs(s.dir(w))
	if err != nil {
		return "", err
	}
	b, err := json.MarshalIndent(map[string]any{
		"version": 1, "name": w.name,
		"model":    map[string]any{"path": filepath.ToSlash(source)},
		"quantize": w.quantize,
		"verify":   map[string]any{"perplexity": map[string]any{"max_ratio": 1e9}, "kl": map[string]any{"max": 1e9}, "layers": map[string]any{"max": 1e9}},
		"publish":  []any{map[string]any{"dir": filepath.ToSlash(place), "replace": true}},
	}, "", "  ")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(s.out, "recipes")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	path := filepath.Join(dir, w.name+".yaml")
	return path, os.WriteFile(path, b, 0o666)
}
