package hubs

import (
	"context"
	"net/http"
	"testing"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// TestStalledRequest: whether a request that got no answer in time was done is not known, whatever its method, so what may
// be sent twice is sent again, and a commit is looked for.
func TestStalledRequest(t *testing.T) {
	t.Run("hub", func(t *testing.T) {
		placetest.WantAgain(t, func(url string) func(ctx context.Context) error {
			hf, err := newHuggingFaceAPI(hub.Options{Endpoint: url}, "org/name", placetest.Quick)
			if err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) error {
				_, err := hf.once(ctx, http.MethodPost, hf.model("commit", "main"), "application/json", []byte("{}"))
				return err
			}
		})
	})
	t.Run("modelscope", func(t *testing.T) {
		placetest.WantAgain(t, func(url string) func(ctx context.Context) error {
			ms, err := newModelScopeAPI(hub.Options{Endpoint: url}, "org/name", placetest.Quick)
			if err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) error {
				_, err := ms.once(ctx, http.MethodPost, ms.model("commit"), map[string]any{})
				return err
			}
		})
	})
}
