package template

import (
	"fmt"
	"strings"
)

// layouts are the directives of strftime that Go's time knows, in the C locale. The time of now has no time zone in
// Python, so %z and %Z are empty.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'e': "_2", 'H': "15", 'I': "03",
	'm': "01", 'M': "04", 'p': "PM", 'S': "05", 'y': "06", 'Y': "2006", 'D': "01/02/06", 'F': "2006-01-02",
	'R': "15:04", 'T': "15:04:05", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'r': "03:04:05 PM",
}

// strftime formats the time of the rendering.
func (r *renderer) strftime(format string) string {
	now := r.limits.Now
	var b output
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		strip := format[i] == '-' && i+1 < len(format) // of the C library: no leading zeros
		if strip {
			i++
		}
		text := ""
		switch c := format[i]; c {
		case '%':
			text = "%"
		case 'n':
			text = "\n"
		case 't':
			text = "\t"
		case 'z', 'Z':
		case 'f':
			text = fmt.Sprintf("%06d", now.Nanosecond()/1000)
		case 'j':
			text = fmt.Sprintf("%03d", now.YearDay())
		case 'u':
			text = fmt.Sprint((int(now.Weekday())+6)%7 + 1)
		case 'w':
			text = fmt.Sprint(int(now.Weekday()))
		default:
			layout, ok := layouts[c]
			if !ok {
				panic(r.unsupported("the directive %%%c of strftime", c))
			}
			text = now.Format(layout)
		}
		if strip {
			if t := strings.TrimLeft(text, "0 "); t != "" {
				text = t
			} else {
				text = "0"
			}
		}
		r.write(&b, text)
	}
	return b.String()
}
