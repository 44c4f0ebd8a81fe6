package transfer

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestListen: what an answer asks to wait reaches the Retry around a request of a library that does not say so, and an
// error that several requests share stays as it is.
func TestListen(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3600")
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	library := &http.Client{Transport: Listen(http.DefaultTransport)}
	shared := &Retryable{Err: errors.New("busy")}
	for path, want := range map[string]string{"/busy": "the server asks to wait 1h0m0s: busy", "/": "5 tries failed: busy"} {
		err := Retry(t.Context(), "ask", Options{Pause: 1}, func(ctx context.Context, _ func(int)) (bool, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
			if err != nil {
				return false, err
			}
			resp, err := library.Do(req)
			if err != nil {
				return false, err
			}
			return false, errors.Join(resp.Body.Close(), shared)
		})
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, shared) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if shared.After != 0 {
		t.Errorf("the error says %v", shared.After)
	}
}
