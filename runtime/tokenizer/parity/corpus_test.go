package parity

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TestCorpus holds what the package promises of its strings.
func TestCorpus(t *testing.T) {
	seen, groups, classes := map[string]bool{}, map[string]int{}, map[string]int{}
	var plain, hard, invalid, bytes int
	for _, s := range Corpus() {
		if s.Text == "" || seen[s.Text] {
			t.Errorf("%s: %q is empty or there twice", s.Class, s.Text)
		}
		seen[s.Text] = true
		groups[s.Group()]++
		classes[s.Class]++
		bytes += len(s.Text)
		valid := utf8.ValidString(s.Text)
		if !valid {
			invalid++
		}
		if s.Hard {
			hard++
			continue
		}
		plain++
		if !valid || !norm.NFC.IsNormalString(s.Text) || strings.ContainsRune(s.Text, 0) {
			t.Errorf("%s: %q is in the plain half", s.Class, s.Text)
		}
	}
	if plain < 10000 || hard < 10000 || invalid < 500 || bytes > 3<<20 {
		t.Errorf("%d plain, %d hard strings, %d not UTF-8, %d bytes", plain, hard, invalid, bytes)
	}
	for group, least := range map[string]int{
		"script": 2500, "category": 700, "emoji": 1500, "decomposed": 800, "marks": 500, "jamo": 300, "indic": 400, "tibetan": 150,
		"whitespace": 900, "digit": 400, "control": 300,
		"format": 500, "private": 50, "noncharacter": 50, "unassigned": 100, "young": 200, "invalid": 500, "contraction": 450,
		"token": 800, "bytetoken": 100, "standin": 300, "long": 150,
		"splice": 3000, "text": 5500, "code": 1500, "markdown": 300, "json": 300, "latex": 250, "number": 500, "date": 300, "url": 250,
		"email": 100, "chat": 400, "table": 200, "indent": 250,
	} {
		if groups[group] < least {
			t.Errorf("%d strings of %s, want %d", groups[group], group, least)
		}
	}
	var scripts, languages int
	for c := range classes {
		switch group, _, _ := strings.Cut(c, "-"); group {
		case "script":
			scripts++
		case "text":
			languages++
		}
	}
	if scripts < 170 || languages < 100 {
		t.Errorf("%d scripts, %d languages", scripts, languages)
	}
}

func TestCompare(t *testing.T) {
	list := []String{{"text-en", "a", false}, {"text-de", "b", false}, {"emoji", "c", false}, {"emoji", "d", true},
		{"emoji", "a", true}, {"invalid", "bb\xff", true}}
	for range 100 {
		list = append(list, String{"long", "bb", true})
	}
	ids := func(s string) []int32 { return []int32{int32(len(s))} }
	other := func(s string) []int32 {
		if strings.ContainsAny(s, "bd") {
			return nil
		}
		return ids(s)
	}
	for _, workers := range []int{0, 1, 4} {
		r := Compare(ids, other, list, workers)
		if r.Plain != (Count{3, 1}) || r.Hard != (Count{102, 101}) || r.Invalid != (Count{1, 1}) {
			t.Errorf("%d workers: plain %v, hard %v", workers, r.Plain, r.Hard)
		}
		if r.Groups["text"] != (Count{2, 1}) || r.Groups["emoji"] != (Count{3, 1}) || r.Groups["long"] != (Count{100, 100}) {
			t.Errorf("%d workers: %v", workers, r.Groups)
		}
		var first []string
		for _, d := range r.First {
			first = append(first, d.String.Text)
		}
		if want := []string{"b", "d", "bb\xff", "bb", "bb", "bb"}; !slices.Equal(first, want) {
			t.Errorf("%d workers: first differences %q, want %q", workers, first, want)
		}
		if d := r.FirstOf(true); d == nil || d.String.Text != "d" || !slices.Equal(d.A, []int32{1}) || d.B != nil {
			t.Errorf("%d workers: first hard difference %v", workers, d)
		}
	}
	if r := Compare(ids, ids, nil, 2); r.Plain.Share() != 0 || r.FirstOf(false) != nil {
		t.Errorf("nothing: %v", r)
	}
}
