package hub

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/fakehub"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	h := fakehub.New()
	s := h.Start(t)
	for token, rejected := range map[string]bool{"": false, fakehub.Token: false, "hf_unknown0123456789": true} {
		for _, source := range []string{"", ModelScope} {
			got, err := Probe(t.Context(), Options{Source: source, Endpoint: s.URL, Token: token, Mirrors: []string{"http://127.0.0.1:1"}})
			if err != nil || source == "" && got.Rejected != rejected || time.Since(got.Clock).Abs() > time.Hour {
				t.Errorf("token %q, source %q: %+v, %v", token, source, got, err)
			}
		}
	}
	before := len(h.Requests("GET", "/api/whoami-v2"))
	h.Fault(fakehub.Rule{Fault: fakehub.Status, Status: 503})
	if _, err := Probe(t.Context(), Options{Endpoint: s.URL}); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a broken hub: %v", err)
	}
	if n := len(h.Requests("GET", "/api/whoami-v2")); n != before+1 {
		t.Errorf("%d requests, want 1", n-before)
	}
	h.ClearFaults()
	h.Fault(fakehub.Rule{Fault: fakehub.Reset})
	if _, err := Probe(t.Context(), Options{Endpoint: s.URL}); err == nil {
		t.Error("no error for a connection that is reset")
	}
}

func TestProbeClock(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = []string{"Mon, 23 Nov 2026 09:11:42 GMT"}
		if r.Header.Get("User-Agent") == "none" {
			w.Header()["Date"] = nil
		}
	}))
	t.Cleanup(srv.Close)
	got, err := Probe(t.Context(), Options{Endpoint: srv.URL})
	if want := time.Date(2026, 11, 23, 9, 11, 42, 0, time.UTC); err != nil || !got.Clock.Equal(want) {
		t.Errorf("%v, %v", got.Clock, err)
	}
	if got, err = Probe(t.Context(), Options{Endpoint: srv.URL, UserAgent: "none"}); err != nil || !got.Clock.IsZero() {
		t.Errorf("without a date: %v, %v", got.Clock, err)
	}
}
