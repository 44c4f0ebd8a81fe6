package dir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

func TestDirDiff(t *testing.T) {
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	placetest.Write(t, filepath.Join(two.Dir, "llm.mnn"), "llm.mnn one")
	two.Manifest.Files[1] = one.Manifest.Files[1]
	data, err := two.Manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	size := two.Manifest.Bytes() + int64(len(data))
	all := []string{"config.json", "llm.mnn", "llm.mnn.weight", "manifest.json", "sub/empty.bin"}
	tests := map[string]struct {
		prepare func(target string)
		want    place.Diff
		err     string
	}{
		"nothing": {func(string) {}, place.Diff{Status: place.Published, Add: all, Upload: size}, ""},
		"same":    {func(d string) { placetest.Publish(t, Place{Path: d}, two) }, place.Diff{Status: place.Unchanged, Keep: all}, ""},
		"another": {func(d string) { placetest.Publish(t, Place{Path: d}, one) },
			place.Diff{Status: place.Replaced, Change: []string{"config.json", "llm.mnn.weight", "manifest.json"},
				Keep: []string{"llm.mnn", "sub/empty.bin"}, Upload: size}, ""},
		"damaged": {func(d string) {
			placetest.Publish(t, Place{Path: d}, two)
			placetest.Write(t, filepath.Join(d, "llm.mnn"), "llm.mnn onf")
			os.Remove(filepath.Join(d, "config.json"))
		}, place.Diff{Status: place.Replaced, Add: []string{"config.json"}, Change: []string{"llm.mnn"},
			Keep: []string{"llm.mnn.weight", "manifest.json", "sub/empty.bin"}, Upload: size}, ""},
		"file": {func(d string) { placetest.Write(t, d, "mine") }, place.Diff{}, "is not a directory"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			target := filepath.Join(base, "out")
			tc.prepare(target)
			before := placetest.Tree(t, base)
			got, err := Place{Path: target, Replace: true}.Diff(t.Context(), two)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, placetest.Tree(t, base)); diff != "" {
				t.Errorf("the disk changed (-before +after):\n%s", diff)
			}
		})
	}
}
