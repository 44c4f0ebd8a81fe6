//go:build tokenizers

package tokenizerstest

import (
	"encoding/json"
	"maps"
	"slices"
)

// shrink makes a sample smaller for as long as it is bad.
func shrink(s *sample, bad func(*sample) bool) *sample {
	try := func(c *sample) bool {
		if !bad(c) {
			return false
		}
		s = c
		return true
	}
	try(&sample{file: s.file, texts: s.texts})
	try(&sample{file: s.file, ids: s.ids})
	shorten(s.texts, func(l []string) bool { return try(&sample{file: s.file, texts: l, ids: s.ids}) })
	shorten(s.ids, func(l [][]int32) bool { return try(&sample{file: s.file, texts: s.texts, ids: l}) })
	for again := true; again; {
		again = false
		_, parts := without(s.file, 0, 0)
		for size := parts; size > 0; size /= 2 {
			for from := 0; from < parts; {
				c := &sample{texts: s.texts, ids: s.ids}
				if c.file, parts = without(s.file, from, size); try(c) {
					again = true
					_, parts = without(s.file, 0, 0)
				} else {
					from += size
				}
			}
		}
		if len(s.texts) == 1 {
			shorten([]rune(s.texts[0]), func(r []rune) bool { return try(&sample{file: s.file, texts: []string{string(r)}}) })
		}
		if len(s.ids) == 1 {
			shorten(s.ids[0], func(ids []int32) bool { return try(&sample{file: s.file, ids: [][]int32{ids}}) })
		}
	}
	return s
}

// shorten leaves out parts of a list, long ones first.
func shorten[T any](list []T, try func([]T) bool) {
	for size := len(list); size > 0; size /= 2 {
		for from := 0; from+size <= len(list); {
			if c := slices.Concat(list[:from], list[from+size:]); try(c) {
				list = c
			} else {
				from += size
			}
		}
	}
}

// without is a file without so many of its parts: components, elements of lists, tokens of a vocabulary, settings that are set,
// characters of patterns. It returns the number of all parts too.
func without(file object, from, size int) (object, int) {
	var f map[string]any
	if err := json.Unmarshal([]byte(marshal(file)), &f); err != nil {
		panic("internal error: " + err.Error())
	}
	at := 0
	drop := func() bool {
		at++
		return at > from && at <= from+size
	}
	var visit func(v any) any
	visit = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				switch child := v[k].(type) {
				case map[string]any:
					if child["type"] != nil && k != "model" && drop() {
						v[k] = nil
					} else {
						visit(child)
					}
				case []any:
					v[k] = visit(child)
				case bool:
					if child && drop() {
						v[k] = false
					}
				case float64:
					if k != "id" && v["type"] == nil && drop() { // a token of a vocabulary
						delete(v, k)
					}
				case string:
					if k == "content" || k == "Regex" || k == "String" {
						var left []rune
						for _, r := range child {
							if !drop() {
								left = append(left, r)
							}
						}
						v[k] = string(left)
					}
				}
			}
		case []any:
			left := []any{}
			for _, e := range v {
				if drop() {
					continue
				}
				left = append(left, visit(e))
			}
			return left
		}
		return v
	}
	visit(f)
	return f, at
}
