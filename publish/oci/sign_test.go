package oci

import (
	"context"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// TestHugeSignatureOCI: what cannot be a signature is not read.
func TestHugeSignatureOCI(t *testing.T) {
	_, sent := placetest.NewHuge(t)
	placetest.WantShort(t, &origin{layers: map[string]ocispec.Descriptor{manifest.SignatureName: {Size: placetest.Huge}}}, sent)
}

// TestStalledOCI: a request that got no answer in time is made again.
func TestStalledOCI(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	placetest.WantAgain(t, func(url string) func(ctx context.Context) error {
		repo, err := openRepo(strings.TrimPrefix(url, "http://")+"/org/name:v1", placetest.Quick)
		if err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) error {
			_, err := repo.Resolve(ctx, "v1")
			return explain(err)
		}
	})
}
