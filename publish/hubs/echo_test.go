package hubs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
)

// TestTokenSaidBack: a hub that repeats the token it was sent does not get it into a message.
func TestTokenSaidBack(t *testing.T) {
	const token = "ms-secret-token"
	p := placetest.Package(t, "one")
	for name, answer := range map[string]struct {
		status int
		head   string
		body   string
	}{
		"refused with success": {200, "", `{"Success": false, "Message": "the token %[1]s has expired"}`},
		"refused":              {403, "the token %[1]s has expired", `{"Code": 403, "Message": "the token %[1]s has expired"}`},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				said := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
				if answer.head != "" {
					w.Header().Set("X-Error-Message", fmt.Sprintf(answer.head, said))
				}
				w.WriteHeader(answer.status)
				fmt.Fprintf(w, answer.body, said)
			}))
			defer server.Close()
			o := &hub.Options{Endpoint: server.URL, Token: token}
			for _, s := range []place.Store{ModelScope{Repo: "org/name", Options: o, Transfer: placetest.Quick},
				HuggingFace{Repo: "org/name", Options: o, Transfer: placetest.Quick}} {
				if _, err := place.To(t.Context(), s, p); err == nil || strings.Contains(err.Error(), token) {
					t.Errorf("%s: %v", s, err)
				}
			}
		})
	}
}
