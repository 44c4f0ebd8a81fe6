package recipes

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzLoad checks that loading never panics, that every error is an *Error, and that the effective form
// of what loads, with and without decoded sections, loads to the same.
func FuzzLoad(f *testing.F) {
	seeds := 0
	seed := func(data []byte) {
		seeds++
		f.Add(data)
	}
	for _, name := range Shipped() {
		data, err := ReadShipped(name)
		if err != nil {
			f.Fatal(err)
		}
		seed(data)
	}
	for _, tt := range bad {
		if len(tt.text) < 1000 {
			seed([]byte(tt.text))
		}
	}
	seed([]byte(full))
	if seeds < 20 {
		f.Fatalf("only %d seeds", seeds)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Load(data, "x.yaml", sectionNames)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			if r != nil { // what could be read must be safe to look at
				_, _ = decodeAll(r)
			}
			return
		}
		reload(t, r, nil)
		if all, err := decodeAll(r); err == nil {
			reload(t, r, all)
		} else if _, ok := errors.AsType[*Error](err); !ok {
			t.Fatalf("%T: %v", err, err)
		}
	})
}

func reload(t *testing.T, r *Recipe, sections map[string]any) {
	first, err := EffectiveJSON(r, sections)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Load(first, "x.yaml", sectionNames)
	if err != nil {
		t.Fatalf("the effective recipe does not load: %v\n%s", err, first)
	}
	var decoded map[string]any
	if sections != nil {
		if decoded, err = decodeAll(again); err != nil {
			t.Fatalf("the effective recipe does not decode: %v\n%s", err, first)
		}
	}
	second, err := EffectiveJSON(again, decoded)
	if err != nil || !bytes.Equal(first, second) {
		t.Fatalf("%v\nfirst  %s\nsecond %s", err, first, second)
	}
}

func FuzzOverride(f *testing.F) {
	for _, s := range []string{"quantize.bits=8", "publish[0].dir=/x", "name=*x", "variants[1].name=y", "a..b=1", "quantize={a: [b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Load([]byte(full), "x.yaml", sectionNames, s)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			if r != nil { // what could be read must be safe to look at
				_, _ = decodeAll(r)
			}
			return
		}
		reload(t, r, nil)
	})
}
