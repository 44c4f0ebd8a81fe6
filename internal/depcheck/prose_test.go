package depcheck

import (
	"bytes"
	"go/scanner"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxWidth bounds a line of Go in characters, a tab being one. Raw strings and struct tags, which cannot be broken, do not count.
const maxWidth = 160

var rawString = regexp.MustCompile("`[^`]*`")

// stilted maps phrases that a native reader stumbles over to plain ones. Comments and string literals do not have them.
var stilted = map[string]string{
	"any more than":         "or",
	"anew":                  "again",
	"believes":              "accepts",
	"beside":                "next to, or in addition to",
	"for who":               "for those who",
	"for whoever":           "for those who",
	"go on where":           "resume where",
	"goes on where":         "resumes where",
	"has not the":           "lacks the",
	"have not the":          "lack the",
	"is no longer what":     "has changed",
	"is not said":           "is not reported",
	"is there already":      "exists",
	"is there twice":        "is a duplicate",
	"no more than that":     "only that",
	"of its own accord":     "by itself",
	"or answers that not":   "and responds otherwise",
	"otherwise than":        "other than",
	"says nothing of":       "does not name",
	"taken back":            "reverted",
	"that the file has not": "that the file lacks",
	"what breaks off":       "a truncated body",
	"what counts is":        "only ... counts",
	"what is none":          "anything else",
	"whatever becomes of":   "regardless of",
	"whoever":               "those who",
}

// phrases matches a key of stilted.
var phrases = regexp.MustCompile(`\b(?:` + strings.Join(slices.Sorted(maps.Keys(stilted)), "|") + `)\b`)

func TestProse(t *testing.T) {
	files := 0
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".go") || name == "internal/depcheck/prose_test.go" {
			return
		}
		src := read(t, name)
		if generated.Match(src) {
			return
		}
		files++
		for _, p := range proseProblems(src) {
			t.Errorf("%s:%d: %s", name, p.line, p.text)
		}
	})
	if files < 500 {
		t.Errorf("only %d files found: the walk is broken", files)
	}
}

// generated matches the first line of a generated file.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

type proseProblem struct {
	line int
	text string
}

// proseProblems returns the long lines of a Go file, and the stilted phrases in its comments and string literals.
func proseProblems(src []byte) (list []proseProblem) {
	line := 0
	for text := range bytes.Lines(src) {
		line++
		if n := utf8.RuneCount(rawString.ReplaceAll(bytes.TrimRight(text, "\r\n"), nil)); n > maxWidth {
			list = append(list, proseProblem{line, "the line is wider than 160 columns"})
		}
	}
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	comment, at, end := "", 0, 0 // a group of line comments
	check := func(text string, line int) {
		for _, phrase := range phrases.FindAllString(strings.ToLower(strings.Join(strings.Fields(text), " ")), -1) {
			list = append(list, proseProblem{line, `"` + phrase + `" is not plain English: write "` + stilted[phrase] + `" or rephrase it`})
		}
	}
	for {
		pos, tok, lit := s.Scan()
		here := 0
		if pos.IsValid() {
			here = fset.Position(pos).Line
		}
		if tok == token.COMMENT && strings.HasPrefix(lit, "//") {
			if comment != "" && here == end+1 {
				comment += " " + lit[2:]
			} else {
				check(comment, at)
				comment, at = lit[2:]+" ", here
			}
			end = here
			continue
		}
		switch tok {
		case token.EOF:
			check(comment, at)
			return list
		case token.COMMENT, token.STRING:
			check(lit, here)
		}
	}
}

func TestProseProblems(t *testing.T) {
	for src, want := range map[string]int{
		"package p\n\n// F goes on\n// where it was.\nfunc F() {}\n":  3,
		"package p\n\nvar s = \"other than that, Otherwise  than\"\n": 3,
		"package p\n\nvar s = `\n" + strings.Repeat("ä", 161) + "`\n": 4,
		"package p\n\nvar s = \"" + strings.Repeat("ä", 150) + "\"\n": 0,
		"package p\n\nvar otherwise, than int // F goes on\n":         0,
	} {
		list := proseProblems([]byte(src))
		if want == 0 && len(list) > 0 || want > 0 && (len(list) != 1 || list[0].line != want) {
			t.Errorf("%q: %v, want one in line %d", src, list, want)
		}
	}
}
