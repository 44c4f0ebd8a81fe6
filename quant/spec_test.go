package quant

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestSpecRoundTrip(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range append(specs(), Half) {
		got, err := ParseSpec(s.String())
		if err != nil || got != s {
			t.Errorf("%v came back as %v, %v", s, got, err)
		}
		if seen[s.String()] {
			t.Errorf("%v stands for two specs", s)
		}
		seen[s.String()] = true
	}
	for s, want := range map[string]Spec{
		"w4-b64-asym":     {4, 64, false, tensor.F16},
		"w8-brow-sym":     {8, WholeRow, true, tensor.F16},
		"w2-b32-asym-s32": {2, 32, false, tensor.F32},
		"f16":             Half,
	} {
		if got, err := ParseSpec(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
}

// badSpecs are near misses; each is also a seed of the fuzz target.
var badSpecs = []string{
	"", "f32", "w4", "w4-b64", "w4-b64-", "w4-b64-asym-", "w4-b64-asym-s16", "w4-b64-asym-s32-s32", "w04-b64-asym",
	"w4-b064-asym", "w4-b0-asym", "w7-b64-asym", "w16-brow-asym", "w4-b65-asym", "w+4-b64-asym", "W4-b64-asym", "w4-b64-asym ",
	"w4-b-64-asym", "b64-w4-asym", "w4-b64-zsym", "w99999999999999999999-b64-asym",
}

func TestParseSpecRefuses(t *testing.T) {
	for _, text := range badSpecs {
		if s, err := ParseSpec(text); !errors.Is(err, tensor.ErrCorrupt) || s != (Spec{}) {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	good := append(specs(), Half)
	if len(good) == 0 || len(badSpecs) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range good {
		f.Add(s.String())
	}
	for _, s := range badSpecs {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpec(text)
		if err != nil {
			if s != (Spec{}) {
				t.Fatalf("%q: %v with error %v", text, s, err)
			}
			return
		}
		if s.String() != text || s.Validate() != nil {
			t.Fatalf("%q is %v", text, s)
		}
	})
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		spec       string
		rows, cols int
		want       Layout
	}{
		// The matrix of the page's size example: 22 bytes of header are not part of it.
		{"w4-b64-asym", 1024, 3072, Layout{1024, 3072, 64, 48, 1572864, 196608}},
		{"w4-b64-sym", 1024, 3072, Layout{1024, 3072, 64, 48, 1572864, 98304}},
		{"w3-brow-asym-s32", 5, 24, Layout{5, 24, 24, 1, 45, 40}},
		{"f16", 3, 5, Layout{Rows: 3, Cols: 5, Codes: 30}},
		{"w8-b128-asym", 151936, 1024, Layout{151936, 1024, 128, 8, 155582464, 4861952}},
	} {
		s, err := ParseSpec(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Layout(c.rows, c.cols)
		if err != nil {
			t.Fatalf("%s: %v", c.spec, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.spec, diff)
		}
	}
	for _, c := range []struct {
		spec       Spec
		rows, cols int
		want       error
		text       string
	}{
		{Spec{4, 64, false, tensor.F16}, 8, 96, tensor.ErrUnsupported, "96 columns do not divide into blocks of 64"},
		{Spec{3, WholeRow, false, tensor.F16}, 8, 10, tensor.ErrUnsupported, "do not end on a byte"},
		{Spec{4, 64, false, tensor.F16}, 0, 64, tensor.ErrCorrupt, "0 x 64"},
		{Spec{4, 64, false, tensor.F16}, 8, -64, tensor.ErrCorrupt, "8 x -64"},
		{Spec{8, WholeRow, false, tensor.F32}, 1 << 40, 1 << 40, tensor.ErrCorrupt, ""},
		{Spec{8, 32, false, tensor.F32}, 1 << 58, 32, tensor.ErrCorrupt, ""},
		{Spec{16, 0, false, tensor.F16}, 1 << 31, 1 << 31, tensor.ErrCorrupt, ""},
		{Spec{}, 8, 64, tensor.ErrUnsupported, "bits must be"},
	} {
		l, err := c.spec.Layout(c.rows, c.cols)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v %d x %d: %v", c.spec, c.rows, c.cols, err)
		}
		if l != (Layout{}) {
			t.Errorf("%v %d x %d: layout %+v with error %v", c.spec, c.rows, c.cols, l, err)
		}
	}
}
