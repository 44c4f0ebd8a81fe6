package stage

import (
	"runtime/debug"
	"testing"
)

func TestVersionOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		release string
		main    debug.Module
		unknown bool
		want    string
	}{
		"release build":    {release: "0.1.0", want: "0.1.0"},
		"release by tag":   {release: "v0.1.0", main: debug.Module{Version: "v0.2.0", Sum: "h1:x"}, want: "0.1.0"},
		"go install":       {main: debug.Module{Version: "v0.2.0", Sum: "h1:x"}, want: "0.2.0"},
		"go install @main": {main: debug.Module{Version: "v0.2.1-0.20261123090530-c43f230f6ba7", Sum: "h1:x"}, want: "0.2.1-0.20261123090530-c43f230f6ba7"},
		"in a work tree":   {main: debug.Module{Version: "v0.0.0-20261123090530-c43f230f6ba7+dirty"}, want: "dev"},
		"without git":      {main: debug.Module{Version: "(devel)"}, want: "dev"},
		"without facts":    {unknown: true, want: "dev"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := versionOf(tc.release, func() (*debug.BuildInfo, bool) { return &debug.BuildInfo{Main: tc.main}, !tc.unknown })
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
