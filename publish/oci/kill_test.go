package oci

import (
	"context"
	"io"
	"log"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"

	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// openRef opens a reference.
func openRef(ctx context.Context, ref string) (place.Origin, error) {
	return Open(ctx, strings.TrimPrefix(ref, "oci://"), place.OpenOptions{Transfer: placetest.Quick})
}

func TestOCIKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	f, url := placetest.NewFresh(t)
	ref := strings.TrimPrefix(url, "http://") + "/org/tiny:v1"
	p := placetest.Big(t, 2*chunkSize+1)
	placetest.Kill(t, placetest.Killable{
		Open: openRef,
		Place: func(int) ([]string, string) {
			f.Set(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
			return []string{publishTo + "=" + ref}, "oci://" + ref
		},
		Sent: f.Sent.Load,
		Most: p.Manifest.Bytes() + 1<<20, // a blob that was not complete is sent again
	}, placetest.Kills(6), p)
}
func TestMain(m *testing.M) { placetest.Main(m, children) }
