package hftokenizers

import "testing"

func TestTakes(t *testing.T) {
	for text, want := range map[string]bool{"": true, "é\u200d\uffff": true, "a\x00b": false, "\xff": false, "\xed\xa0\x80": false} {
		if Takes(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
