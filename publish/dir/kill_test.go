package dir

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

const publishTo = "PUBLISH_TEST_DIR"

func TestDirKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	base := t.TempDir()
	placetest.Kill(t, placetest.Killable{
		Open: func(ctx context.Context, ref string) (place.Origin, error) {
			return Open(ctx, ref, place.OpenOptions{})
		},
		Place: func(i int) ([]string, string) {
			dir := filepath.Join(base, strconv.Itoa(i%2)) // every second time over what a kill has left
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			return []string{publishTo + "=" + dir}, dir
		},
		Sent: func() int64 { return 0 }, // a directory is copied again
	}, placetest.Kills(6), placetest.Big(t, 6<<20))
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
