package main

import (
	"slices"
	"strings"
	"testing"
)

// TestThoughts: however a text is cut into pieces, its thoughts are those between the tags, and nothing is lost.
func TestThoughts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "plain": "plain", "a < b <th": "a < b <th",
		"<think>hm</think>yes":          "[<think>hm</think>]yes",
		"a<think>b</think>c<think>d":    "a[<think>b</think>]c[<think>d]",
		"</think>x":                     "</think>x",
		"<think><think></think>a</thin": "[<think><think></think>]a</thin",
	} {
		for size := 1; size <= len(text)+1; size++ {
			var b strings.Builder
			in := false
			s := &thoughts{print: func(text string, thought bool) error {
				if thought != in {
					b.WriteString(map[bool]string{true: "[", false: "]"}[thought])
					in = thought
				}
				b.WriteString(text)
				return nil
			}}
			for piece := range slices.Chunk([]byte(text), size) {
				if err := s.write(string(piece)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			if in {
				b.WriteString("]")
			}
			if b.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q", text, size, b.String(), want)
			}
		}
	}
}
