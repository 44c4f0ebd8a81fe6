package figure

import "testing"

func TestBetter(t *testing.T) {
	for _, c := range []struct {
		name       string
		a, b       int64
		kl, stderr float64
		want       bool
	}{
		{"smaller and closer", 90, 100, -1, 0.1, true},
		{"smaller and as close", 90, 100, 0.1, 0.1, true},
		{"smaller and farther", 90, 100, 1, 0.1, false},
		{"23 bytes larger and closer", 9_940_023, 9_940_000, -1, 0.1, true},
		{"23 bytes smaller and as close", 9_940_000, 9_940_023, 0.1, 0.1, false},
		{"larger and closer", 110, 100, -1, 0.1, false},
		{"equal", 100, 100, 0, 0, false},
	} {
		if got := Better(c.a, c.b, c.kl, c.stderr); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestMarkFront(t *testing.T) {
	points := []Point{
		{Name: "small", Bytes: 100, KL: 1, StdErr: 0.01}, {Name: "noise", Bytes: 120, KL: 0.99, StdErr: 0.01},
		{Name: "close", Bytes: 150, KL: 0.5, StdErr: 0.01}, {Name: "worse", Bytes: 150, KL: 0.7, StdErr: 0.01},
	}
	MarkFront(points)
	for i, want := range []Kind{Front, Rest, Front, Rest} {
		if points[i].Kind != want {
			t.Errorf("%s is of kind %d, want %d", points[i].Name, points[i].Kind, want)
		}
	}
}
