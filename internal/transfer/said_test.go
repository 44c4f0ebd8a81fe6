package transfer

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSaid(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a  b\n c": "a b c", "\x1b[31mred\x07": "[31mred", "\u202egnp": "gnp", "a\xffb": "ab",
		"see https://x/y?sig=secret now":     "see https://x/... now",
		`GET "https://u:p@x:5/y": no`:        `GET "https://x:5/...": no`,
		`PUT "/y?sig=secret": why? a = b`:    `PUT "/y?...": why? a = b`,
		"(https://x?sig=secret)":             "(https://x/...)",
		"https://u:secret@x\nhttp://y#s":     "https://x http://y/...",
		strings.Repeat("é", maxSaid):         strings.Repeat("é", maxSaid/2) + "...",
		strings.Repeat("x", 100*maxSaid):     strings.Repeat("x", maxSaid) + "...",
		"s3+https://x/secret://u:secret@y/z": "s3+https://x/...",
	} {
		if got := Said(in); got != want {
			t.Errorf("%.60q: %q, want %q", in, got, want)
		}
	}
}

func FuzzSaid(f *testing.F) {
	f.Add("see https://u:p@x/y?sig=secret now")
	f.Fuzz(func(t *testing.T, s string) {
		got := Said(s)
		if len(got) > maxSaid+3 || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b") {
			t.Errorf("%q", got)
		}
		if Said("https://u:p@x/y?sig="+url.QueryEscape(s)+"#") != "https://x/..." {
			t.Errorf("%q", s)
		}
	})
}

func TestRedactText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&url.Error{Op: "Get", URL: "https://x/y?sig=secret", Err: io.EOF}, "x: EOF"},
		{fmt.Errorf("%s %q: no length: %w", "GET", "https://x/y?sig=secret", io.EOF), `GET "https://x/...": no length: EOF`},
		{&url.Error{Op: "Get", URL: "https://x", Err: fmt.Errorf("from https://z/secret: %w", io.EOF)}, "x: from https://z/...: EOF"},
		{fmt.Errorf("plain: %w", io.EOF), "plain: EOF"},
	} {
		got := Redact(c.err)
		if got.Error() != c.want || !errors.Is(got, io.EOF) {
			t.Errorf("%v, want %s", got, c.want)
		}
	}
	if Redact(nil) != nil {
		t.Error("an error out of nothing")
	}
}

func TestHide(t *testing.T) {
	c := &Client{}
	c.secrets().Add("hf_secret")
	again := &Retryable{Err: fmt.Errorf("no token hf_secret: %w", io.EOF)}
	err := c.Hide(again)
	if err.Error() != "no token ...: EOF" || !errors.Is(err, io.EOF) || !errors.As(err, &again) {
		t.Error(err)
	}
	for _, err := range []error{nil, io.EOF} {
		if c.Hide(err) != err || new(Client).Hide(err) != err {
			t.Error(err)
		}
	}
}
