package verify_test

import (
	"strings"
	"testing"
)

// Windows are spread over the text, and 0 means as many as it has, side by side.
func TestWindows(t *testing.T) {
	s := open(t, goodPackage(t), "")
	s.Options.Window = 64
	ids := len(s.Package.Tokenizer.Encode(s.Options.Text))
	for _, c := range []struct{ windows, want int }{{1, 1}, {3, 3}, {0, ids / 64}, {1 << 20, ids / 64}} {
		s.Options.Windows = c.windows
		list, err := s.WindowsOfText()
		if err != nil || len(list) != c.want {
			t.Errorf("%d windows: %d of %d tokens, want %d: %v", c.windows, len(list), ids, c.want, err)
		}
	}
	s.Options.Text = "short"
	if _, err := s.WindowsOfText(); err == nil || !strings.Contains(err.Error(), "too few for a window of 64") {
		t.Errorf("a short text: %v", err)
	}
}
