package stage

import (
	"slices"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Limits go by the mean width, which a few small matrices in 16 bits do not move.
func TestBodyBits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		four, eight, half int
		want              int
	}{{25, 2, 3, 4}, {0, 1, 3, 8}, {0, 0, 4, 16}, {1, 1, 0, 6}, {28, 2, 0, 4}, {0, 0, 0, 16}} {
		var list []manifest.Tensor
		for spec, n := range map[string]int{"w4-b64-asym": c.four, "w8-b64-asym": c.eight, "f16": c.half, "f32": 3} {
			list = append(list, slices.Repeat([]manifest.Tensor{{Spec: spec}}, n)...)
		}
		if got := bodyBits(list); got != c.want {
			t.Errorf("%+v: limits of %d bits", c, got)
		}
	}
}

func TestShellWord(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"a/b-1.x": "a/b-1.x", "a b": "'a b'", "it's": `'it'\''s'`, "/päth": "/päth", "$x": "'$x'"} {
		if got := shellWord(in); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}
