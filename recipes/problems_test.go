package recipes

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Mistakes come in the order of their places, one for each place and key; the first ones are shown.
func TestErrors(t *testing.T) {
	at := func(line int, message string) error {
		return &Error{File: "x.yaml", Line: line, Column: 1, Message: message}
	}
	if err := Join(nil, nil); err != nil {
		t.Error(err)
	}
	if err := Join(nil, at(3, "a: b")); err.Error() != "x.yaml:3:1: a: b" {
		t.Error(err)
	}
	err := Join(at(3, "a: b"), Join(at(2, "c: d"), at(3, "a: other")), at(0, "e: missing"), at(0, "f: missing"), at(2, "c: d"))
	if got, want := err.Error(), "x.yaml: e: missing\nx.yaml: f: missing\nx.yaml:2:1: c: d\nx.yaml:3:1: a: b"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if e := (*Error)(nil); !errors.As(fmt.Errorf("wrapped: %w", err), &e) || e.Message != "e: missing" {
		t.Errorf("%v", e)
	}
	var many []error
	for i := range 500 {
		many = append(many, at(i+1, fmt.Sprintf("k%d: x", i)))
	}
	text := Join(many...).Error()
	if strings.Count(text, "\n") != maxShown || !strings.HasSuffix(text, "\nand 490 more mistakes") {
		t.Error(text)
	}
	if err := Join(at(1, "a: b"), errors.ErrUnsupported); err != errors.ErrUnsupported {
		t.Error(err)
	}
}

// What is wrong in sections is found although the recipe does not load.
func TestLoadInPart(t *testing.T) {
	text := "version: 1\nnme: x\nmodel: {path: a, foo: 1}\nquantize: {bits: many, bitz: 4}\nvariants: [{nme: y}, {name: z, target: {engine: 3}}]\n"
	r, err := Load([]byte(text), "x.yaml", sectionNames)
	if r == nil {
		t.Fatal(err)
	}
	_, more := decodeAll(r)
	all := Join(err, more).Error()
	for _, want := range []string{"name: is missing", "2:1: nme: unknown key", "3:18: model.foo: unknown key", "4:18: quantize.bits: must be",
		"4:24: quantize.bitz: unknown key", "5:13: variants[0].nme", "5:12: variants[0].name: is missing", "5:49: target.engine: must be a string"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
}
