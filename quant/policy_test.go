package quant

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestPolicy(t *testing.T) {
	override := func(match string, set func(o *Override)) Override {
		o := Override{Match: regexp.MustCompile(match)}
		set(&o)
		return o
	}
	bits := func(match string, n int) Override { return override(match, func(o *Override) { o.Bits = &n }) }
	block := func(match string, n int) Override { return override(match, func(o *Override) { o.Block = &n }) }
	sym := func(match string, b bool) Override { return override(match, func(o *Override) { o.Symmetric = &b }) }
	scale := func(match string, d tensor.DType) Override {
		return override(match, func(o *Override) { o.Scale = &d })
	}

	for _, c := range []struct {
		name      string
		overrides []Override
		auto      bool
		def       string
		tensor    string
		role      Role
		cols      int
		want      string
		from      int
		override  int
	}{
		{name: "default", want: "w4-b64-asym", override: -1},
		{name: "table", role: Table, want: "w8-b64-asym", override: -1},
		{name: "fine", role: Fine, want: "f16", override: -1},
		{name: "fine, overridden", role: Fine, overrides: []Override{bits("q_proj", 8)}, want: "w8-b64-asym", override: 0},
		{name: "an override that does not match", overrides: []Override{bits("k_proj", 8)}, want: "w4-b64-asym", override: -1},
		{name: "unanchored", overrides: []Override{bits("q_pr", 8)}, want: "w8-b64-asym", override: 0},
		{name: "last match wins", overrides: []Override{bits("q_proj", 8), bits("layers", 3), bits("k_proj", 2)}, want: "w3-b64-asym", override: 1},
		{name: "field by field", overrides: []Override{bits("q_proj", 8), block("q_proj", 32), sym("q_proj", true)}, want: "w8-b32-sym", override: 2},
		{name: "whole row", overrides: []Override{block("q_proj", WholeRow)}, want: "w4-brow-asym", override: 0},
		{name: "scale", overrides: []Override{scale("q_proj", tensor.F32)}, want: "w4-b64-asym-s32", override: 0},
		{name: "to halves", overrides: []Override{block("q_proj", 32), bits("q_proj", 16)}, want: "f16", override: 1},
		{name: "halves and back", overrides: []Override{bits("q_proj", 16), bits("q_proj", 8)}, want: "w8-b64-asym", override: 1},
		{name: "halves by default and back", def: "f16", overrides: []Override{bits("q_proj", 8)}, want: "w8-b64-asym", override: 0},
		{name: "auto block leaves what divides", auto: true, cols: 128, want: "w4-b64-asym", override: -1},
		{name: "auto block 32", auto: true, cols: 96, want: "w4-b32-asym", from: 64, override: -1},
		{name: "auto block 64 of 128", auto: true, cols: 192, overrides: []Override{block("q", 128)}, want: "w4-b64-asym", from: 128, override: 0},
		{name: "auto block whole row", auto: true, cols: 80, want: "w4-brow-asym", from: 64, override: -1},
		{name: "auto block of halves", auto: true, cols: 80, overrides: []Override{bits("q", 16)}, want: "f16", override: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Policy{Default: Spec{4, 64, false, tensor.F16}, Table: Spec{8, 64, false, tensor.F16}, AutoBlock: c.auto, Overrides: c.overrides}
			if c.def != "" {
				var err error
				if p.Default, err = ParseSpec(c.def); err != nil {
					t.Fatal(err)
				}
			}
			if c.cols == 0 {
				c.cols = 256
			}
			got, err := p.Choose("model.layers.0.self_attn.q_proj.weight", c.role, 64, c.cols)
			if err != nil {
				t.Fatal(err)
			}
			if got.Spec.String() != c.want || got.AutoFrom != c.from || got.Override != c.override {
				t.Errorf("%v from %d by override %d, want %s from %d by %d", got.Spec, got.AutoFrom, got.Override, c.want, c.from, c.override)
			}
		})
	}
	for _, c := range []struct {
		name      string
		overrides []Override
		auto      bool
		cols      int
		want      string
	}{
		{"a block that does not divide", nil, false, 96, "q_proj: 96 columns do not divide into blocks of 64"},
		{"bits no engine reads", []Override{bits("q", 7)}, false, 256, "q_proj: bits must be one of"},
		{"a block no engine reads", []Override{block("q", 48)}, true, 96, "q_proj: block must be"},
		{"blocks of halves", []Override{bits("q", 16), block("q", 32)}, false, 256, "q_proj: 16 bits have neither blocks nor symmetry"},
		{"a row that ends within a byte", []Override{bits("q", 3)}, true, 36, "q_proj: rows of 36 codes of 3 bits do not end on a byte"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Policy{Default: Spec{4, 64, false, tensor.F16}, AutoBlock: c.auto, Overrides: c.overrides}
			got, err := p.Choose("q_proj", Body, 64, c.cols)
			if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), c.want) || got != (Choice{}) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
