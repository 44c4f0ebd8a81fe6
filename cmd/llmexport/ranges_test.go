package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRanges(t *testing.T) {
	for text, want := range map[string][]int{
		"0": {0}, "17,0": {0, 17}, "3, 5-7,6": {3, 5, 6, 7},
		"": nil, "a": nil, "-1": nil, "3-": nil, "5-3": nil, "1,,2": nil, "70000": nil, "0-60000,0-60000": nil,
	} {
		got, err := parseRanges(text)
		if (err == nil) != (want != nil) || err == nil && !cmp.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
