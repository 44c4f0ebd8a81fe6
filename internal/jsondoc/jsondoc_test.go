package jsondoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// nested is an array that lies in others, depth levels with its own.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestDecode(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"a value":             {`{"a":[1,{"b":"]}[{,\""}]}`, ""},
		"space around":        {" {}\n", ""},
		"deep":                {nested(MaxDepth), ""},
		"one too deep":        {nested(MaxDepth + 1), "byte 32: nested deeper than 32 levels"},
		"objects too deep":    {strings.Repeat(`{"a":`, MaxDepth+1), "nested deeper"},
		"brackets in a text":  {`"` + strings.Repeat("[", 100) + `"`, ""},
		"escapes in a text":   {`["\\","\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["]`, ""},
		"many values":         {"[" + strings.Repeat("0,", MaxValues) + "0]", "more than 2097152 values"},
		"many objects":        {"[" + strings.Repeat("{},", MaxValues/2+1) + "0]", "more than 2097152 values"},
		"a stray brace":       {`{}}`, "after top-level value"},
		"a stray bracket":     {`{}]`, "after top-level value"},
		"two values":          {`{} {}`, "after top-level value"},
		"nothing":             {``, "unexpected end"},
		"an open text":        {`"a`, "unexpected end"},
		"closed and not open": {`]`, "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			var v any
			if err := Decode([]byte(c.in), &v); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestDecodeStrict(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1}` + "\n": "", `{"b":1}`: "unknown field", `{"a":1}}`: "data after the end", `{"a":1}]`: "data after the end",
		`{"a":1}{}`: "data after the end", `{"a":1},`: "data after the end",
		`{"a":` + nested(MaxDepth) + `}`: "nested deeper",
	} {
		var v struct{ A json.RawMessage }
		if err := DecodeStrict([]byte(in), &v); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", in, err, want)
		}
	}
}

// allocated is how many bytes f takes, whether or not it gives them back.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What the bounds let through takes memory in proportion; what they refuse takes none.
func TestMemory(t *testing.T) {
	type row struct{ A, B, C, D, E, F string }
	var rows []row
	many := []byte("[" + strings.Repeat("{},", 4*MaxValues) + "{}]")
	if n := allocated(func() {
		if Decode(many, &rows) == nil {
			t.Error("too many values were read")
		}
	}); n > 1<<20 {
		t.Errorf("refusing %d bytes took %d", len(many), n)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"]}[{,\""}]}`, nested(MaxDepth), nested(MaxDepth + 1), `{}}`, `[1,2]]`, `"\`, `{"a":1} {`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var loose, strict any
		err := Decode(b, &loose)
		if serr := DecodeStrict(b, &strict); (err == nil) != (serr == nil) || err == nil && fmt.Sprint(loose) != fmt.Sprint(strict) {
			t.Fatalf("%v and %v, errors %v and %v", loose, strict, err, serr)
		}
		var want any
		right := json.Unmarshal(b, &want) == nil
		if ours := right && depth(b) <= MaxDepth; (err == nil) != ours && len(b) <= MaxValues {
			t.Fatalf("error %v; right: %v", err, right)
		}
	})
}

// depth is how deep brackets of a right document are nested.
func depth(b []byte) (deepest int) {
	now := 0
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		switch t, err := d.Token(); {
		case err != nil:
			return deepest
		case t == json.Delim('[') || t == json.Delim('{'):
			now++
			deepest = max(deepest, now)
		case t == json.Delim(']') || t == json.Delim('}'):
			now--
		}
	}
}
