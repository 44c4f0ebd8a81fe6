package template

import (
	"fmt"
	"strings"
	"time"
)

// layouts are the directives of strftime that Go's time knows, in the C locale.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'e': "_2", 'H': "15", 'I': "03",
	'm': "01", 'M': "04", 'p': "PM", 'S': "05", 'y': "06", 'Y': "2006", 'D': "01/02/06", 'F': "2006-01-02",
	'R': "15:04", 'T': "15:04:05", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'r': "03:04:05 PM",
}

// Strftime formats a time by one directive of strftime that Python and the C library agree on; false for another one.
func Strftime(now time.Time, directive byte) (string, bool) {
	switch directive {
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'j':
		return fmt.Sprintf("%03d", now.YearDay()), true
	case 'u':
		return fmt.Sprint((int(now.Weekday())+6)%7 + 1), true
	case 'w':
		return fmt.Sprint(int(now.Weekday())), true
	}
	layout, ok := layouts[directive]
	return now.Format(layout), ok
}

// strftime formats the time of the rendering. In Python the time of now has no time zone, so %z and %Z are empty.
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
		text, ok := Strftime(now, format[i])
		switch c := format[i]; {
		case ok, c == 'z', c == 'Z':
		case c == 'f':
			text = fmt.Sprintf("%06d", now.Nanosecond()/1000)
		default:
			panic(r.unsupported("the directive %%%c of strftime", c))
		}
		if strip {
			if text = strings.TrimLeft(text, "0 "); text == "" {
				text = "0"
			}
		}
		r.write(&b, text)
	}
	return b.String()
}
