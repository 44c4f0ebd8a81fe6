package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Plans are written in pieces, and read as if they were written whole.
func TestPlansJSON(t *testing.T) {
	tensors := []plannedTensor{
		{"a.weight", "/layers.0/a", []int64{3, 5}, "w4-b32-asym", 0, 1 << 40},
		{"\"tensors\": []", "<ä&\\\n\x01\xff\u2028>", []int64{7}, "f32", 1, 2},
		{"", "", []int64{}, "", -1, 0},
	}
	for _, plans := range [][]*planned{
		{{Name: `x "tensors": [] y`, Tensors: tensors, UnsafeThreads: map[int][]int{4: {}, 8: {3}}, Specs: []plannedSpec{{"f32", 1, 2}}, Warnings: []string{"<b>"}}},
		{{Tensors: []plannedTensor{}}, {Tensors: tensors[:1]}},
	} {
		var want, got bytes.Buffer
		if err := (&tool{stdout: &want}).printJSON(struct {
			Plans []*planned `json:"plans"`
		}{plans}); err != nil {
			t.Fatal(err)
		}
		if err := (&tool{stdout: &got}).printPlans(plans); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.String(), got.String()); d != "" {
			t.Errorf("(-whole +pieces)\n%s", d)
		}
	}
}
