package transfer

import (
	"regexp"
	"strings"
	"unicode"
)

// maxSaid is how much of a server's message is shown, in bytes.
const maxSaid = 300

var (
	// address matches addresses in a text.
	address = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]*`)
	// query matches the queries of addresses without a host.
	query = regexp.MustCompile(`\?[^\s"'<>]*=[^\s"'<>]*`)
)

// Said makes a server's message fit to show: short, on one line, printable, and with addresses reduced to their hosts, because
// storage addresses are signed and work for anyone.
func Said(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), 16*maxSaid)], ""))
	s = hideAddresses(strings.Join(strings.Fields(s), " "))
	if len(s) <= maxSaid {
		return s
	}
	return strings.ToValidUTF8(s[:maxSaid], "") + "..."
}

// hideAddresses leaves the scheme, the host and the port of each address, and of one without a host everything but the query.
func hideAddresses(s string) string {
	s = address.ReplaceAllStringFunc(s, func(a string) string {
		end := strings.TrimRight(a, ":,;.)") // punctuation of the sentence
		scheme, rest, _ := strings.Cut(end, "://")
		host := rest
		if i := strings.IndexAny(rest, `/?#\`); i >= 0 {
			host = rest[:i]
		}
		dots := ""
		if len(host) < len(rest) {
			dots = "/..."
		}
		return scheme + "://" + host[strings.LastIndexByte(host, '@')+1:] + dots + a[len(end):]
	})
	return query.ReplaceAllString(s, "?...")
}

// redacted is an error that shows less than the error it wraps.
type redacted struct {
	text string
	err  error
}

func (r *redacted) Error() string { return r.text }
func (r *redacted) Unwrap() error { return r.err }
