package main

import (
	"fmt"
	"strings"
)

// markdown has a row for each package; bold are those of which no other is both smaller and closer to the source.
func markdown(rows []row, judged bool) string {
	var b strings.Builder
	b.WriteString("| package | bytes | KL, float | KL, int8 |")
	if judged {
		b.WriteString(" judge's KL, high | judge's KL, low |")
	}
	b.WriteString(" perplexity |")
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", strings.Count(b.String(), "|")-2) + "\n")
	for _, r := range rows {
		name := r.Name
		if r.Front {
			name = "**" + name + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |", name, grouped(r.Bytes), number("%.5f", r.KLFloat), number("%.5f", r.KL))
		if judged {
			fmt.Fprintf(&b, " %.5f | %.5f |", r.judged[0], r.judged[1])
		}
		fmt.Fprintf(&b, " %s |\n", number("%.4f", r.Perplexity))
	}
	return b.String()
}

func number(format string, v *float64) string {
	if v == nil {
		return "not finite"
	}
	return fmt.Sprintf(format, *v)
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
