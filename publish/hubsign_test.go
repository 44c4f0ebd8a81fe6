package publish

import (
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/publish/manifest"
)

// TestHugeSignature: what cannot be a signature is not read.
func TestHugeSignature(t *testing.T) {
	url, sent := newHuge(t)
	api, err := newHubAPI(hub.Options{Endpoint: url}, testRepo, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("hub", func(t *testing.T) { wantShort(t, hubOrigin{api, strings.Repeat("0", 40)}, sent) })
	t.Run("modelscope", func(t *testing.T) {
		wantShort(t, modelScopeOrigin{&modelScopeAPI{repoClient{repo: testRepo}}, "", map[string]hubFile{manifest.SignatureName: {size: huge}}}, sent)
	})
}
