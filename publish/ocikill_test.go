package publish

import (
	"context"
	"io"
	"log"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/llmexport/llmexport/publish/place"
)

// openOCIRef opens a reference.
func openOCIRef(ctx context.Context, ref string) (place.Origin, error) {
	return openOCI(ctx, strings.TrimPrefix(ref, "oci://"), place.OpenOptions{Transfer: quick})
}

func TestOCIKilled(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	f, url := newFresh(t)
	ref := strings.TrimPrefix(url, "http://") + "/org/tiny:v1"
	p := bigPackage(t, 2*ociChunk+1)
	killPlaces(t, killable{
		open: openOCIRef,
		place: func(int) ([]string, string) {
			f.set(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
			return []string{ociChild + "=" + ref}, "oci://" + ref
		},
		sent: f.sent.Load,
		most: p.Manifest.Bytes() + 1<<20, // a blob that was not complete is begun anew
	}, killsOr(6), p)
}
