package tokenizer

import (
	"encoding/json"
	"slices"
	"sync"
	"unicode"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
)

// scriptStage is the pre-tokenizer UnicodeScripts: it cuts where the script changes. Spaces, and characters of no known
// script, belong to the text before them; kana count as Han.
type scriptStage struct{}

func readUnicodeScripts(raw json.RawMessage, _ int) (preTokenizer, error) {
	var c struct {
		Type string `json:"type"`
	}
	return scriptStage{}, setup("pre-tokenizer", "UnicodeScripts", raw, &c)
}

func (scriptStage) split(in piece, yield func(piece)) {
	s := in.text
	last, from := uint8(anyScript), -1
	table := scripts()
	for i, c := range s {
		script := table.of(c)
		if script == anyScript {
			continue
		}
		if last != script {
			// The text before the first script is dropped, as in the library.
			if from >= 0 {
				yield(in.part(from, i))
			}
			from = i
		}
		last = script
	}
	if from >= 0 {
		yield(in.part(from, len(s)))
	}
}

const anyScript = 0

// scriptTable gives each code point the number of its script.
type scriptTable struct {
	ascii  [128]uint8
	ranges []scriptRange
}

type scriptRange struct {
	lo, hi rune
	script uint8
}

var scripts = sync.OnceValue(func() *scriptTable {
	t := &scriptTable{}
	names := []string{""}
	for name := range unicode.Scripts {
		names = append(names, name)
	}
	slices.Sort(names)
	han := uint8(slices.Index(names, "Han"))
	known := chars.SetOf(unicode9)
	extra := map[string]chars.Set{"Common": {{0x589, 0x589}, {0x61C, 0x61C}}, "Devanagari": {{0x953, 0x954}}}
	var moved chars.Set
	for _, set := range extra {
		moved = moved.Union(set)
	}
	known = known.Intersect(moved.Negate())
	for i, name := range names[1:] {
		script := uint8(i + 1)
		if name == "Hiragana" || name == "Katakana" {
			script = han
		}
		for _, r := range chars.SetOf(unicode.Scripts[name]).Intersect(known).Union(extra[name]) {
			t.ranges = append(t.ranges, scriptRange{r[0], r[1], script})
		}
	}
	slices.SortFunc(t.ranges, func(a, b scriptRange) int { return int(a.lo - b.lo) })
	for c := range t.ascii {
		t.ascii[c] = t.find(rune(c))
	}
	return t
})

func (t *scriptTable) find(c rune) uint8 {
	i, ok := slices.BinarySearchFunc(t.ranges, c, func(r scriptRange, c rune) int {
		switch {
		case r.hi < c:
			return -1
		case r.lo > c:
			return 1
		}
		return 0
	})
	if !ok {
		return anyScript
	}
	return t.ranges[i].script
}

func (t *scriptTable) of(c rune) uint8 {
	const longVowelMark = 0x30FC
	switch {
	case c == ' ':
		return anyScript
	case c < 128:
		return t.ascii[c]
	case c == longVowelMark:
		c = '一'
	}
	return t.find(c)
}
