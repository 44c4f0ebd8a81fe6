package publish

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline/hub"
)

// TestStalledRequest: whether a request that got no answer in time was done is not known, whatever its method, so what may
// be sent twice is sent again, and a commit is looked for.
func TestStalledRequest(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	o := hub.Options{Endpoint: server.URL}
	hf, err := newHubAPI(o, "org/name", quick)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := newModelScopeAPI(o, "org/name", quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	oci, err := openRepo(strings.TrimPrefix(server.URL, "http://")+"/org/name:v1", quick)
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(ctx context.Context) error{
		"hub": func(ctx context.Context) error {
			_, err := hf.once(ctx, http.MethodPost, hf.model("commit", "main"), "application/json", []byte("{}"))
			return err
		},
		"modelscope": func(ctx context.Context) error {
			_, err := ms.once(ctx, http.MethodPost, ms.model("commit"), map[string]any{})
			return err
		},
		"oci": func(ctx context.Context) error {
			_, err := oci.Resolve(ctx, "v1")
			return ociError(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			err := transfer.Retry(t.Context(), "test", transfer.Options{Stall: 20 * time.Millisecond, Pause: time.Millisecond}, func(ctx context.Context, _ func()) (bool, error) {
				if tries++; tries == 2 {
					return false, nil
				}
				return false, ask(ctx)
			})
			if again := (*transfer.Retryable)(nil); err != nil || errors.As(err, &again) || tries != 2 {
				t.Errorf("%d tries, %v", tries, err)
			}
		})
	}
}
