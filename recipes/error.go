package recipes

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An Error is a mistake in a recipe and its place.
type Error struct {
	// File is the file name that was passed to Load, or "--set " and the invalid override.
	File string
	// Line and Column count from 1, Column in characters. Both are 0 if the place is unknown.
	Line, Column int
	// Message begins with the path of the key, such as "quantize.bits: ".
	Message string
	// Excerpt is the source line and a line with a caret under the column; empty if there is none.
	Excerpt string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	if e.Excerpt != "" {
		b.WriteString("\n" + e.Excerpt)
	}
	return b.String()
}

// A source is a text that values come from: a recipe's file or an override.
type source struct {
	name  string
	lines []string // nil for an override, whose name already shows everything
}

// A position is a place in a source; line 0 is the source as a whole.
type position struct {
	src       *source
	line, col int
}

// errorf returns an *Error at the position, for the value at a path.
func (p position) errorf(path, format string, args ...any) error {
	e := &Error{Message: fmt.Sprintf(format, args...)}
	if path != "" {
		e.Message = path + ": " + e.Message
	}
	if p.src == nil {
		return e
	}
	e.File = p.src.name
	if p.line < 1 || p.line > len(p.src.lines) {
		return e
	}
	e.Line, e.Column = p.line, max(p.col, 1)
	e.Excerpt = excerpt(p.src.lines[p.line-1], e.Line, e.Column)
	return e
}

// excerptWidth is how many characters of a long line are shown, half of them before the column.
const excerptWidth = 120

func excerpt(line string, number, column int) string {
	text := []rune(strings.ToValidUTF8(line, string(utf8.RuneError)))
	column = min(column, len(text)+1)
	if first := column - 1 - excerptWidth/2; first > 0 && len(text) > excerptWidth {
		text, column = text[first:], column-first
	}
	text = text[:min(len(text), excerptWidth)]
	for i, r := range text {
		// A tab would move the caret, and control characters would reach the terminal.
		if r == '\t' {
			text[i] = ' '
		} else if !unicode.IsPrint(r) {
			text[i] = utf8.RuneError
		}
	}
	margin := strconv.Itoa(number)
	return fmt.Sprintf("  %s | %s\n  %s | %s^", margin, string(text),
		strings.Repeat(" ", len(margin)), strings.Repeat(" ", column-1))
}

// shorten quotes a string that comes from a recipe for a message.
func shorten(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return strconv.Quote(s)
}

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = strconv.Quote(s)
	}
	return strings.Join(quoted, ", ")
}
