package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// layouts are conversions of strftime in the C locale that the package time knows.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'D': "01/02/06",
	'e': "_2", 'F': "2006-01-02", 'h': "Jan", 'H': "15", 'I': "03", 'm': "01", 'M': "04", 'p': "PM", 'P': "pm",
	'r': "03:04:05 PM", 'R': "15:04", 'S': "05", 'T': "15:04:05", 'x': "01/02/06", 'X': "15:04:05", 'y': "06", 'Y': "2006",
	'z': "-0700", 'Z': "MST",
}

// strftime formats a time as C++'s put_time does with the C library of Linux. A flag such as that of %-d is unknown:
// it stays, and so does other text. Conversions that no template is known to use are rejected.
func strftime(now time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		if i++; i == len(format) {
			break
		}
		switch c := format[i]; {
		case layouts[c] != "":
			b.WriteString(now.Format(layouts[c]))
		case c == '%':
			b.WriteByte('%')
		case c == 'n':
			b.WriteByte('\n')
		case c == 't':
			b.WriteByte('\t')
		case c == 'j':
			fmt.Fprintf(&b, "%03d", now.YearDay())
		case c == 'u':
			fmt.Fprint(&b, (int(now.Weekday())+6)%7+1)
		case c == 'w':
			fmt.Fprint(&b, int(now.Weekday()))
		case c == 's':
			fmt.Fprint(&b, now.Unix())
		case c == 'k':
			fmt.Fprintf(&b, "%2d", now.Hour())
		case c == 'l':
			fmt.Fprintf(&b, "%2d", (now.Hour()+11)%12+1)
		case strings.IndexByte("CgGUVWEO0_+", c) >= 0:
			panic(failure{fmt.Errorf("strftime_now: conversion %%%c: %w", c, tensor.ErrUnsupported)})
		default:
			b.WriteByte('%')
			b.WriteByte(c)
		}
	}
	return b.String()
}
