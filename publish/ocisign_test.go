package publish

import (
	"context"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestHugeSignatureOCI: what cannot be a signature is not read.
func TestHugeSignatureOCI(t *testing.T) {
	_, sent := newHuge(t)
	wantShort(t, &ociOrigin{layers: map[string]ocispec.Descriptor{manifest.SignatureName: {Size: huge}}}, sent)
}

// TestStalledOCI: a request that got no answer in time is made again.
func TestStalledOCI(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	wantAgain(t, func(url string) func(ctx context.Context) error {
		repo, err := openRepo(strings.TrimPrefix(url, "http://")+"/org/name:v1", quick)
		if err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) error {
			_, err := repo.Resolve(ctx, "v1")
			return ociError(err)
		}
	})
}
