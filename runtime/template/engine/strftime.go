package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/tensor"
)

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
		text, ok := template.Strftime(now, format[i])
		switch c := format[i]; {
		case ok:
			b.WriteString(text)
		case c == 'P':
			b.WriteString(now.Format("pm"))
		case c == 'z':
			b.WriteString(now.Format("-0700"))
		case c == 'Z':
			b.WriteString(now.Format("MST"))
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
