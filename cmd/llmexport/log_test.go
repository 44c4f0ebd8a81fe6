package main

import (
	"encoding/json"
	"fmt"
	"testing"
)

// Messages for people round what they say; a whole number and a text stay.
func TestPrepareLine(t *testing.T) {
	for _, c := range []struct {
		name string
		in   any
		want string
	}{
		{"dur", json.Number("127163.152424"), "2m07s"},
		{"dur", json.Number("68.203415"), "68ms"},
		{"dur", json.Number("2345.6"), "2.3s"},
		{"dur", json.Number("7300000"), "2h02m"},
		{"wait", json.Number("1500"), "1.5s"},
		{"kl", json.Number("0.004904593007118509"), "0.0049"},
		{"predicted_kl", json.Number("1.5e-7"), "1.5e-07"},
		{"seconds", json.Number("1234.56"), "1235"},
		{"bytes", json.Number("4357572"), "4357572"},
		{"message", "a\x1b[2Jb", `a\x1b[2Jb`},
		{"name", "0.004904593007118509", "0.004904593007118509"},
	} {
		line := map[string]any{c.name: c.in}
		if err := prepareLine(line); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(line[c.name]); got != c.want {
			t.Errorf("%s %v is shown as %s, want %s", c.name, c.in, got, c.want)
		}
	}
}
