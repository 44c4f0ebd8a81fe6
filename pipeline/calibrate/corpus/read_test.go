package corpus

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// passages reads b; chats are shown as role=content.
func passages(d Data, b []byte) ([]string, error) {
	if d.Path == "" {
		d.Path = "x." + d.Format
	}
	form, err := d.format()
	if err != nil {
		return nil, err
	}
	var all []string
	err = form.read(context.Background(), &file{bytes.NewReader(b), int64(len(b)), d}, func(p passage) error {
		s := p.text
		for _, m := range p.messages {
			s += m.Role + "=" + m.Content + ";"
		}
		if p.start {
			all = append(all, s)
		} else {
			all[len(all)-1] += s
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func TestRead(t *testing.T) {
	long := strings.Repeat("A sentence of some length. ", 3*chunk/27)
	for name, tc := range map[string]struct {
		data Data
		text string
		want []string
	}{
		"one document":      {Data{Format: "text"}, "a\nb\n\nc\n", []string{"a\nb\n\nc"}},
		"two documents":     {Data{Format: "text"}, "\n\n\na\n \t\n\r\n\nb\n\nc\n\n\n", []string{"a", "b\n\nc"}},
		"crlf":              {Data{Format: "text"}, "a\r\n\r\nb\r\n\r\n\r\nc\r\n", []string{"a\r\n\r\nb", "c"}},
		"byte-order mark":   {Data{Format: "text"}, "\ufeffa", []string{"a"}},
		"only white space":  {Data{Format: "text"}, " \n\n\t", nil},
		"long document":     {Data{Format: "text"}, long + "\n\n\nb", []string{long, "b"}},
		"long line":         {Data{Format: "text"}, strings.Repeat("河", chunk), []string{strings.Repeat("河", chunk)}},
		"lines":             {Data{Format: "jsonl"}, `{"text":"a\nb","n":1}` + "\n\n  \n" + `{"text":" "}` + "\n" + `{"n":[{}],"text":"\u6cb3"}`, []string{"a\nb", "河"}},
		"column":            {Data{Format: "jsonl", Column: "body"}, `{"text":1,"body":"a"}` + "\r\n", []string{"a"}},
		"messages":          {Data{Format: "jsonl", Chat: true}, `{"messages":[{"role":"user","content":"a","x":1},{"content":"b","role":"tool"}]}`, []string{"user=a;tool=b;"}},
		"conversations":     {Data{Format: "jsonl", Chat: true}, `{"conversations":[{"from":"system","value":""},{"from":"human","value":"a"},{"from":"gpt","value":"b"}]}`, []string{"system=;user=a;assistant=b;"}},
		"array":             {Data{Format: "json"}, ` [ {"text":"a"} , {"text":"b"}]` + "\n", []string{"a", "b"}},
		"array of messages": {Data{Format: "json", Chat: true, Column: "c"}, `[{"c":[{"role":"user","content":"a"}]}]`, []string{"user=a;"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := passages(tc.data, []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	line := func(v string) string { return `{"text":"a"}` + "\n" + v }
	chat := func(v string) string { return `{"messages":` + v + `}` }
	lines, chats := Data{Format: "jsonl"}, Data{Format: "jsonl", Chat: true}
	for name, tc := range map[string]struct {
		data    Data
		text    string
		want    string
		corrupt bool
	}{
		"text not UTF-8":   {Data{Format: "text"}, "aé\xffb", "not UTF-8 at byte 3", true},
		"text cut off":     {Data{Format: "text"}, "abc\xe6\xb2", "not UTF-8 at byte 3", true},
		"lines not UTF-8":  {lines, line("{\"text\":\"\xe9\"}"), "not UTF-8 at byte 22", true},
		"array not UTF-8":  {Data{Format: "json"}, "[\xe9]", "not UTF-8 at byte 1", true},
		"half a line":      {lines, line(`{"text":"b`), "line 2: not valid JSON", true},
		"two values":       {lines, line(`{"text":"b"} {}`), "line 2: not valid JSON", true},
		"no object":        {lines, line(`["b"]`), "line 2: an array, not an object", true},
		"null":             {lines, line(`null`), "line 2: null, not an object", true},
		"no key":           {lines, line(`{"b":1,"a":2}`), `line 2: no key text; there are ["a" "b"]`, false},
		"key in capitals":  {lines, `{"Text":"a"}`, `line 1: no key text; there are ["Text"]`, false},
		"no keys":          {lines, `{}`, `line 1: no key text; there are none`, false},
		"number":           {lines, line(`{"text":1}`), "line 2: text is a number, not a string", false},
		"null text":        {lines, line(`{"text":null}`), "line 2: text is null, not a string", false},
		"list of texts":    {lines, line(`{"text":["a"]}`), "line 2: text is an array, not a string", false},
		"no chat":          {chats, `{"text":"a"}`, `line 1: no key messages or conversations; there are ["text"]`, false},
		"chat of text":     {chats, chat(`"a"`), "line 1: messages is a string, not an array of messages", false},
		"no messages":      {chats, chat(`[]`), "line 1: messages holds no messages", false},
		"message of text":  {chats, chat(`["a"]`), "line 1: messages, message 1: a string, not an object", true},
		"no role":          {chats, chat(`[{"role":"user","content":"a"},{"content":"a"}]`), `line 1: messages, message 2: no role and content, and no from and value; there are ["content"]`, false},
		"no content":       {chats, chat(`[{"role":"user"}]`), "no role and content", false},
		"null content":     {chats, chat(`[{"role":"user","content":null}]`), "line 1: messages, message 1: content is null, not a string", false},
		"parts":            {chats, chat(`[{"role":"user","content":[{"type":"text"}]}]`), "content is an array, not a string", false},
		"empty role":       {chats, chat(`[{"role":"","content":"a"}]`), "the role of a message is empty", false},
		"unknown sender":   {chats, chat(`[{"from":"bing","value":"a"}]`), `message 1: a message is from "bing"; known are human`, false},
		"lines as array":   {Data{Format: "json"}, `{"text":"a"}`, "one object a line has the format jsonl", true},
		"array cut off":    {Data{Format: "json"}, `[{"text":"a"},`, "not valid JSON at byte", true},
		"array not closed": {Data{Format: "json"}, `[{"text":"a"}`, "not valid JSON at byte 13", true},
		"text after array": {Data{Format: "json"}, `[{"text":"a"}] []`, "text after the array", true},
		"element":          {Data{Format: "json"}, `[{"text":"a"},{"text":2}]`, "element 2: text is a number, not a string", false},
		"long line":        {lines, `{"text":"` + strings.Repeat("a", maxLine+2<<20) + `"}`, "line 1 has more than 67108864 bytes", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := passages(tc.data, []byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, tensor.ErrCorrupt) != tc.corrupt {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

// Cut anywhere, a stream is refused at the same byte.
func TestUTF8(t *testing.T) {
	for text, want := range map[string]int64{
		"aé河😀b": -1, "": -1, "\xff": 0, "a\x80": 1, "河\xe6\xb2": 3, "😀\xf0\x9f\x98a": 4, "é\xed\xa0\x80": 2, "\xc0\xaf": 0, "a\xf5": 1,
		"ab\xe6\xb2\xe6\xb2\xb3": 2,
	} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "data and EOF": iotest.DataErrReader,
		} {
			u := newUTF8(&file{ReaderAt: strings.NewReader(text), size: int64(len(text))})
			u.r = wrap(u.r)
			got, err := io.ReadAll(u)
			if want < 0 && (err != nil || string(got) != text) {
				t.Errorf("%q by %s: %q, %v", text, name, got, err)
			}
			if want >= 0 && (err == nil || err.Error() != corrupt("not UTF-8 at byte %d", want).Error()) {
				t.Errorf("%q by %s: %v, want byte %d", text, name, err, want)
			}
		}
	}
}

func TestCut(t *testing.T) {
	for text, want := range map[string][]string{
		"":                           nil,
		"short":                      {"short"},
		"A line\n\nof text. And one": {"A line\n\n", "of text.", " And one"},
		"One thing. Another thing":   {"One thing.", " Another", " thing"},
		"012345678901234":            {"0123456789", "01234"},
		"河河河河河河":                     {"河河河", "河河河"},
		"          ":                 {"          "},
	} {
		got := cut(text, 10)
		if d := cmp.Diff(want, got); d != "" || strings.Join(got, "") != text {
			t.Errorf("%q: %s", text, d)
		}
	}
}

func FuzzLines(f *testing.F) {
	for _, s := range []string{
		`{"text":"a"}` + "\n" + `{"text":"b"}`, `{"messages":[{"role":"user","content":"a"}]}`, `{"conversations":[{"from":"gpt","value":"\ud800"}]}`,
		"\ufeff{}", `{"text":null}`, "\xff", "[]", `{"messages":[{"from":"a","role":"b","content":""}]}`,
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, chat bool) {
		for _, format := range []string{"jsonl", "json", "text"} {
			all, err := passages(Data{Format: format, Chat: chat && format != "text"}, b)
			if err != nil && all != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				if !chat && (strings.TrimSpace(s) == "" || validPrefix(s) != len(s)) {
					t.Fatalf("%s: %q", format, s)
				}
			}
		}
	})
}
