// Package sheet prints tables and sizes for a terminal.
package sheet

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Table is a table without borders, so that its columns can be cut and pasted. Columns whose header begins with ">" are
// aligned to the right.
type Table struct{ t table.Writer }

// New returns a table; without headers it has none.
func New(header ...string) *Table {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	var row table.Row
	var configs []table.ColumnConfig
	for i, h := range header {
		name, right := strings.CutPrefix(h, ">")
		if right {
			configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
		row = append(row, name)
	}
	t.SetColumnConfigs(configs)
	if len(row) > 0 {
		t.AppendHeader(row)
	}
	return &Table{t}
}

// Row adds a row; texts are escaped for terminals.
func (s *Table) Row(cells ...any) {
	for i, c := range cells {
		switch c.(type) {
		case int, int64, float64:
		default:
			cells[i] = Plain(fmt.Sprint(c))
		}
	}
	s.t.AppendRow(cells)
}

// Write prints the table, after a blank line unless it is the first; an empty table prints nothing.
func (s *Table) Write(w io.Writer, first bool) error {
	if s.t.Length() == 0 {
		return nil
	}
	var b strings.Builder
	if !first {
		b.WriteByte('\n')
	}
	for line := range strings.SplitSeq(s.t.Render(), "\n") {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Plain is [Escape] for text that stays on one line.
func Plain(s string) string {
	return Escape(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, s))
}

// Size formats a number of bytes, exactly and in a unit.
func Size(n int64) string {
	if n < 1024 {
		return Rounded(n)
	}
	return fmt.Sprintf("%d bytes (%s)", n, Rounded(n))
}

// Rounded formats a number of bytes in a unit.
func Rounded(n int64) string {
	const units = "KMGT"
	v, unit := float64(n), -1
	for v >= 1024 && unit < len(units)-1 {
		v /= 1024
		unit++
	}
	if unit < 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %ciB", v, units[unit])
}
