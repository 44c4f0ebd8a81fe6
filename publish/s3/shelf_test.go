package s3

import (
	"context"
	"testing"

	"github.com/llmexport/llmexport/internal/fakes3"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

func TestShelfS3(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	s := placetest.NewS3(t)
	testShelf(t, func(prefix string) Place { return placeAt(s, prefix) })
	if _, _, err := placeAt(s, "").Shelf(); err == nil {
		t.Error("the package is the whole bucket")
	}
}

// testShelf tests the channels of a bucket and of a prefix in it.
func testShelf(t *testing.T, at func(prefix string) Place) {
	for _, above := range []string{"models/tiny/", ""} {
		shelf := placetest.Shelf{
			Ctx:   t.Context(),
			Store: func(version string) place.Store { return at(above + version) },
			Open: func(ctx context.Context, name string, o place.OpenOptions) (place.Origin, error) {
				p := at(above)
				o.Transfer = placetest.Quick
				ref := fakes3.Bucket + "/" + above
				if above != "" {
					ref = ref[:len(ref)-1]
				}
				return Open(ctx, ref+"@"+name+"?endpoint="+p.Endpoint+"&region="+p.Region, o)
			},
		}
		t.Run("above "+above, func(t *testing.T) {
			shelf.Run(t)
			t.Run("collision", shelf.Collision)
		})
	}
}
