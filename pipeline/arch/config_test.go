package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestParseConfig(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty", ``, `byte 0: unexpected end of JSON input`},
		{"truncated", `{"a": 1`, `byte 7: unexpected end of JSON input`},
		{"list", `[]`, `[] instead of an object`},
		{"null", `null`, `null instead of an object`},
		{"trailing comma", `{"a": 1,}`, `byte 9: invalid character '}' looking for beginning of object key string`},
		{"two objects", `{} {}`, `byte 4: invalid character '{' after top-level value`},
		{"comment", `{} // no`, `byte 4: invalid character '/' after top-level value`},
		{"two byte order marks", "\ufeff\ufeff{}", `byte 1: invalid character 'ï' looking for beginning of value`},
		{"not UTF-8", "{\"a\": \"\xff\"}", `not UTF-8`},
		{"twice", `{"a": 1, "b": 2, "a": 1}`, `a: given twice`},
		{"twice, escaped", `{"a": 1, "\u0061": 1}`, `a: given twice`},
		{"twice inside", `{"a": [{"b": {"c": 1, "c": 2}}]}`, `a.[].b.c: given twice`},
		{"word as a key", `{NaN: 1}`, `byte 2: invalid character '{' looking for beginning of object key string`},
		{"two words", `{"b": NaNNaN}`, `byte 27: invalid character '{' after object key:value pair`},
		{"plus", `{"b": +Infinity}`, `byte 7: invalid character '+' looking for beginning of value`},
		{"another word", `{"b": nan}`, `byte 8: invalid character 'a' in literal null (expecting 'u')`},
		{"deep", `{"a": ` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, `a: nested deeper than 32 levels`},
		{"large", `{"a": "` + strings.Repeat("x", maxConfigBytes) + `"}`, `4194313 bytes, more than 4194304`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ParseConfig([]byte(tt.text))
			if c != nil || err == nil {
				t.Fatalf("accepted")
			}
			if diff := cmp.Diff("config.json: "+tt.want, err.Error()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if !errors.Is(err, tensor.ErrCorrupt) {
				t.Errorf("%q does not wrap %q", err, tensor.ErrCorrupt)
			}
		})
	}
}

// TestParsePython reads what Python's json writes and JSON does not have.
func TestParsePython(t *testing.T) {
	c, err := ParseConfig([]byte("\ufeff" + `{"NaN": "NaN \" -Infinity", "a": NaN, "b": [0.0, Infinity], "c": -Infinity, "d": -1}`))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for key, v := range c.fields.values {
		got[key] = v
	}
	want := map[string]any{"NaN": `NaN " -Infinity`, "a": nonFinite("NaN"), "b": []any{json.Number("0.0"), nonFinite("Infinity")},
		"c": nonFinite("-Infinity"), "d": json.Number("-1")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if c.Float("a", 0, 1); c.Good("a") {
		t.Error("NaN is taken for a number")
	}
}

func TestConfigAccessors(t *testing.T) {
	c, err := ParseConfig([]byte(`{"int": 9007199254740993, "float": 1e-05, "whole": 3, "bool": true, "string": "s",
		"list": ["a", "b"], "empty": [], "null": null, "object": {"int": 7, "rest": 1}, "rest": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	const lo, hi = 0, 10
	// The text of the number is kept: as float64 it would be even.
	if v := show(c.fields.values["int"]); v != "9007199254740993" {
		t.Errorf("int is %s", v)
	}
	if f := c.Float("float", lo, hi); f != 1e-5 {
		t.Errorf("float is %v", f)
	}
	if f, n := c.Float("whole", lo, hi), c.Int("whole", 3); f != 3 || n != 3 {
		t.Errorf("whole is %v and %v", f, n)
	}
	if !c.Bool("bool", false) || !c.Bool("absent", true) || c.Bool("absent", false) {
		t.Error("bool")
	}
	if s := c.String("string"); s != "s" {
		t.Errorf("string is %q", s)
	}
	if diff := cmp.Diff([][]string{{"a", "b"}, {}, nil, nil},
		[][]string{c.Strings("list"), c.Strings("empty"), c.Strings("null"), c.Strings("absent")}); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, key := range []string{"null", "absent"} {
		_, okInt := c.OptInt(key, 1)
		_, okFloat := c.OptFloat(key, lo, hi)
		_, okString := c.OptString(key)
		if okInt || okFloat || okString || c.Object(key) != nil || c.Has(key) {
			t.Errorf("%s is there", key)
		}
	}
	o := c.Object("object")
	if n := o.Int("int", 7); n != 7 {
		t.Errorf("object.int is %d", n)
	}
	c.family = "test"
	err = c.Finish()
	want := "config.json: int: unknown to family test; rest: unknown to family test; object.rest: unknown key"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// seeds adds the files that match the patterns, and fails when a pattern matches none.
func seeds(f *testing.F, add func([]byte), patterns ...string) {
	f.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds match %s (%v)", pattern, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			add(b)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) }, "testdata/*/config.json", "testdata/hub/*.json", "testdata/refused/*.json")
	f.Add([]byte("\ufeff" + `{"a": {"__float__": "NaN"}, "b": [[-Infinity]], "c": NaN, "d": "Infinity \" \\"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if plain := PlainJSON(b); json.Valid(b) && !bytes.Equal(plain, b) || !bytes.Equal(PlainJSON(plain), plain) {
			t.Fatalf("%q became %q", b, plain)
		}
		c, err := ParseConfig(b)
		if err != nil {
			if c != nil || !errors.Is(err, tensor.ErrCorrupt) {
				t.Fatalf("%v %v", c, err)
			}
			return
		}
		for _, key := range c.fields.keys {
			c.OptInt(key, 10)
			c.OptFloat(key, 0, 1)
			c.Bool(key, true)
			c.OptString(key)
			c.Strings(key)
			c.Object(key)
		}
		if err := c.Finish(); err != nil && err.Error() == "" {
			t.Fatal("an error without words")
		}
	})
}

// FuzzDescribe varies the config of a checkpoint and drops one of its tensors.
func FuzzDescribe(f *testing.F) {
	files, err := filepath.Glob("testdata/*/model.safetensors")
	if err != nil || len(files) == 0 {
		f.Fatalf("no checkpoints: %v", err)
	}
	tensors := make([][]tensor.Info, 0, len(files))
	for i, file := range files {
		tensors = append(tensors, readHeader(f, file))
		ck := loadCheckpoint(f, filepath.Dir(file))
		for _, without := range []int{0, 7, len(ck.tensors)} {
			f.Add(ck.config, uint8(i), uint16(without))
		}
	}
	seeds(f, func(b []byte) { f.Add(b, uint8(0), uint16(0)) }, "testdata/refused/*.json", "testdata/hub/*.json")
	f.Fuzz(func(t *testing.T, config []byte, which uint8, without uint16) {
		infos := tensors[int(which)%len(tensors)]
		if i := int(without); i < len(infos) {
			infos = append(infos[:i:i], infos[i+1:]...)
		}
		d, err := describe(config, infos, Options{})
		if err != nil {
			if d != nil || !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
				t.Fatalf("%v %v", d, err)
			}
			return
		}
		if len(d.Claimed) != len(infos) || len(d.Layers) == 0 {
			t.Fatalf("%+v", d)
		}
		summary(d)
	})
}
