package hubs

import (
	"path"
	"slices"
	"strings"
)

const attributesFile = ".gitattributes"

// attributesLine makes git store a pointer in place of a file.
const attributesLine = " filter=lfs diff=lfs merge=lfs -text\n"

// withAttributes adds a line for each name that git would not store in LFS; clones of the repository need them, and the
// hub adds them itself only for large files. It returns nil if nothing is to be added.
func withAttributes(attributes []byte, names []string) []byte {
	var missing []string
	for _, name := range names {
		if !keptByLFS(attributes, name) {
			missing = append(missing, attributesPattern(name)+attributesLine)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	text := string(attributes)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return []byte(text + strings.Join(missing, ""))
}

// attributesPattern escapes a name for gitattributes(5). Special characters become ?, which matches them.
func attributesPattern(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" []#!", r) {
			return '?'
		}
		return r
	}, name)
}

// keptByLFS reports whether a line puts the file into LFS and no later one reverses it. Patterns with ** are not
// supported and match nothing: a redundant line is harmless.
func keptByLFS(attributes []byte, name string) bool {
	kept := false
	for line := range strings.Lines(string(attributes)) {
		words := strings.Fields(line)
		if len(words) < 2 || strings.HasPrefix(words[0], "#") {
			continue
		}
		pattern, target := strings.TrimPrefix(words[0], "/"), name
		if !strings.Contains(words[0], "/") {
			target = path.Base(name)
		}
		if ok, err := path.Match(pattern, target); err != nil || !ok {
			continue
		}
		for _, w := range words[1:] {
			switch w {
			case "filter=lfs":
				kept = true
			case "-filter", "!filter":
				kept = false
			}
		}
	}
	return kept
}
