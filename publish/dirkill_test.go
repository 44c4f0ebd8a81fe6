package publish

import (
	"context"
	"github.com/llmexport/llmexport/publish/place"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const dirChild = "PUBLISH_TEST_DIR"

func TestDirKilled(t *testing.T) {
	base := t.TempDir()
	killPlaces(t, killable{
		open: func(ctx context.Context, ref string) (place.Origin, error) {
			return openDir(ctx, ref, place.OpenOptions{})
		},
		place: func(i int) ([]string, string) {
			dir := filepath.Join(base, strconv.Itoa(i%2)) // every second time over what a kill has left
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			return []string{dirChild + "=" + dir}, dir
		},
		sent: func() int64 { return 0 }, // a directory is copied anew
	}, killsOr(6), bigPackage(t, 6<<20))
	left, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if strings.Contains(e.Name(), tmpMark) || strings.Contains(e.Name(), oldMark) {
			t.Errorf("%s is left", e.Name())
		}
	}
}
