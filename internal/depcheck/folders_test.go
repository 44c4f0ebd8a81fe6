package depcheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// folders is the order of the top-level folders, lowest first. A package of the program imports packages of its own folder
// and of those before it, so that the picture of the folders has no circle. Packages that only tests and tools import are not
// of the program.
var folders = []string{"docs", "internal", "runtime", "quant", "backends", "recipes", "publish", "verify", "pipeline", "cmd"}

// program returns the packages of ours that the commands import, and theirs.
func program(edges []edge) map[string]bool {
	of := map[string][]string{}
	for _, e := range edges {
		if to, ours := strings.CutPrefix(e.to, module+"/"); ours {
			of[e.from] = append(of[e.from], to)
		}
	}
	reached, left := map[string]bool{}, []string{"cmd/llmexport", "cmd/llmexport-sign"}
	for len(left) > 0 {
		p := left[0]
		left = left[1:]
		if !reached[p] {
			reached[p] = true
			left = append(left, of[p]...)
		}
	}
	return reached
}

// up lists the arrows between packages of the program that point to a higher folder: "from -> to", with the places.
func up(edges []edge) map[string][]string {
	folder := func(pkg string) int {
		top, _, _ := strings.Cut(pkg, "/")
		return slices.Index(folders, top)
	}
	against := map[string][]string{}
	reached := program(edges)
	for _, e := range edges {
		to, ours := strings.CutPrefix(e.to, module+"/")
		if ours && reached[e.from] && (folder(e.from) < 0 || folder(to) > folder(e.from)) {
			arrow := fmt.Sprintf("%s -> %s", e.from, to)
			against[arrow] = append(against[arrow], e.at)
		}
	}
	return against
}

func TestFolders(t *testing.T) {
	edges, _ := imports(t)
	against := up(edges)
	for _, arrow := range slices.Sorted(maps.Keys(against)) {
		t.Errorf("%s points up: %s", arrow, strings.Join(against[arrow], ", "))
	}
}

// TestFoldersNoticeOffence makes sure that the test above can fail.
func TestFoldersNoticeOffence(t *testing.T) {
	list := func(arrows ...string) (edges []edge) {
		for _, a := range arrows {
			from, to, _ := strings.Cut(a, " -> ")
			edges = append(edges, edge{from, module + "/" + to, "here"})
		}
		return edges
	}
	for _, c := range []struct {
		name   string
		arrows []string
		want   []string
	}{
		{"down", []string{"cmd/llmexport -> publish", "publish -> runtime/tensor", "publish -> publish/manifest"}, nil},
		{"up", []string{"cmd/llmexport -> publish", "publish -> pipeline/hub"}, []string{"publish -> pipeline/hub"}},
		{"circle", []string{"cmd/llmexport -> verify", "verify -> quant", "quant -> verify/far"}, []string{"quant -> verify/far"}},
		{"tools", []string{"internal/quality -> recipes"}, nil},
		{"new folder", []string{"cmd/llmexport -> text", "text -> runtime"}, []string{"text -> runtime"}},
	} {
		if got := slices.Sorted(maps.Keys(up(list(c.arrows...)))); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
