package hub

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTokenSaidBack: a hub that repeats the token it was sent does not get it into a message.
func TestTokenSaidBack(t *testing.T) {
	const token = "ms-secret-token"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"Success": false, "Message": "the token %s has expired"}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}))
	defer server.Close()
	_, err := Resolve(t.Context(), Ref{Repo: "org/name"}, Options{Source: ModelScope, Endpoint: server.URL, Token: token, CacheDir: t.TempDir()})
	if err == nil || strings.Contains(err.Error(), token) || !strings.Contains(err.Error(), "the token *************** has expired") {
		t.Error(err)
	}
}
