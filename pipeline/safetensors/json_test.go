package safetensors

import (
	"encoding/json"
	"testing"
)

// Strings and numbers are read as encoding/json reads them, and what it refuses is refused.
func TestDecoderReadsWhatJSONReads(t *testing.T) {
	for _, text := range []string{
		`"a"`, `""`, `"a\"b"`, `"\\"`, `"\u0041\n\ud83d\ude00"`, `"\ud800"`, `"ü"`, `"\x"`, `"\u12"`, `"a`, `"a\`, `"a\"`, "\"\n\"", "\"\x00\"", ` "a" `,
		`0`, `-0`, `1.5e3`, `1e9`, `007`, `1.`, `.5`, `-`, `+1`, `1e`, `1-1`, `0x1`, `9223372036854775807`, ``, ` `, `nul`,
	} {
		var want any
		bad := json.Unmarshal([]byte(text), &want) != nil
		d := newDecoder([]byte(text))
		if s, err := d.string("x"); err == nil && d.end("x") == nil {
			if bad || s != want {
				t.Errorf("%s: %q, want %v", text, s, want)
			}
			continue
		}
		d = newDecoder([]byte(text))
		if n, err := d.number("x"); err == nil && d.end("x") == nil {
			var v float64
			if bad || json.Unmarshal([]byte(n), &v) != nil || v != want {
				t.Errorf("%s: %s, want %v", text, n, want)
			}
			continue
		}
		if !bad {
			t.Errorf("%s is refused", text)
		}
	}
}

func TestDecoderRefuses(t *testing.T) {
	for _, text := range []string{
		`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{"a":1 "b":1}`, `{"a":1]`, `{a:1}`, `{1:1}`, `[1]`, `{"a":1}}`, `{"a":[1]}`,
	} {
		d := newDecoder([]byte(text))
		err := d.object("x", func(string) error { _, err := d.natural("x"); return err })
		if err == nil {
			err = d.end("x")
		}
		if err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	var got []int64
	d := newDecoder([]byte("{ \"a\" :\t1 ,\r\n\"b\":2}  "))
	err := d.object("x", func(string) error {
		n, err := d.natural("x")
		got = append(got, n)
		return err
	})
	if err != nil || d.end("x") != nil || len(got) != 2 || got[0] != 1 || got[1] != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
