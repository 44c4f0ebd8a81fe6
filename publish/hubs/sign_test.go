package hubs

import (
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// TestHugeSignature: what cannot be a signature is not read.
func TestHugeSignature(t *testing.T) {
	url, sent := placetest.NewHuge(t)
	api, err := newHuggingFaceAPI(hub.Options{Endpoint: url}, placetest.Repo, placetest.Quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("hub", func(t *testing.T) { placetest.WantShort(t, huggingFaceOrigin{api, strings.Repeat("0", 40)}, sent) })
	t.Run("modelscope", func(t *testing.T) {
		placetest.WantShort(t, modelScopeOrigin{&modelScopeAPI{repoClient{repo: placetest.Repo}}, "",
			map[string]repoFile{manifest.SignatureName: {size: placetest.Huge}}}, sent)
	})
}
