package sealed

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fault"
)

type record struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

func TestRoundTrip(t *testing.T) {
	want := record{"<a> & b", 7}
	b, err := Marshal("weights-1", want)
	if err != nil {
		t.Fatal(err)
	}
	var got record
	if err := Unmarshal("weights-1", b, &got); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if err := Unmarshal("weights-1", append(b, '\n'), &got); err != nil {
		t.Errorf("as a line: %v", err)
	}
	if err := Unmarshal("weights-2", b, &got); !errors.Is(err, fault.ErrCorrupt) {
		t.Errorf("a record about something else: %v", err)
	}
	if sum, err := Sum("weights-1", want); err != nil || !strings.Contains(string(b), `"`+sum+`"`) {
		t.Errorf("sum %s of %s, %v", sum, b, err)
	}
	if _, err := Marshal("x", func() {}); err == nil {
		t.Error("a function is sealed")
	}
}

// Every flipped bit is found, or changes nothing of what is read; so is every cut.
func TestDamage(t *testing.T) {
	want := record{"abc", 1 << 40}
	whole, err := Marshal("x", want)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(whole) {
		b := append([]byte(nil), whole...)
		b[i/8] ^= 1 << (i % 8)
		var got record
		if err := Unmarshal("x", b, &got); err == nil && got != want {
			t.Errorf("bit %d: %+v is believed", i, got)
		}
	}
	for n := range whole {
		if err := Unmarshal("x", whole[:n], new(record)); !errors.Is(err, fault.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// FuzzUnmarshal holds that what is believed is what Marshal writes: the same JSON has the same checksum.
func FuzzUnmarshal(f *testing.F) {
	whole, err := Marshal("x", record{"abc", 3})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(whole), string(whole[:20]), `{"sha256":"","record":null}`, `{"record":{}}`, `[]`, ``} {
		f.Add("x", seed)
	}
	f.Fuzz(func(t *testing.T, about, text string) {
		var raw json.RawMessage
		if Unmarshal(about, []byte(text), &raw) != nil {
			return
		}
		var s struct {
			SHA256 string `json:"sha256"`
		}
		if err := json.Unmarshal([]byte(text), &s); err != nil || s.SHA256 != sum(about, raw) {
			t.Errorf("%q is believed of %q", text, about)
		}
		if Unmarshal(about+"x", []byte(text), &raw) == nil {
			t.Errorf("%q is believed of two things", text)
		}
	})
}
