package fakehub

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// checkPath rejects names that git does not store.
func checkPath(name string) error {
	if !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\x00\\") || slices.Contains(strings.Split(name, "/"), ".git") {
		return fmt.Errorf("%q is not a file name", name)
	}
	return nil
}

// trees returns git's hashes of all folders.
func trees(files map[string]*object) map[string]string {
	type entry struct{ sortBy, mode, name, id string }
	entries := map[string][]entry{"": nil}
	seen := map[string]bool{}
	for name, o := range files {
		dir, base := split(name)
		entries[dir] = append(entries[dir], entry{base, "100644", base, o.blob})
		for dir != "" && !seen[dir] {
			seen[dir] = true
			up, base := split(dir)
			entries[up] = append(entries[up], entry{base + "/", "40000", base, ""})
			dir = up
		}
	}
	ids := map[string]string{}
	var name func(dir string) string
	name = func(dir string) string {
		list := entries[dir]
		slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.sortBy, b.sortBy) })
		var b []byte
		for _, e := range list {
			if e.id == "" {
				e.id = name(strings.TrimPrefix(dir+"/"+e.name, "/"))
			}
			b = append(fmt.Appendf(b, "%s %s\x00", e.mode, e.name), unhex(e.id)...)
		}
		ids[dir] = gitID("tree", b)
		return ids[dir]
	}
	name("")
	return ids
}

// split splits a name into its folder, which is "" at the root, and its last element.
func split(name string) (dir, base string) {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}
