package placetest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Huge is the size that a server of [NewHuge] announces, in bytes.
const Huge = 10 << 30

// NewHuge is a server that announces ten gigabytes and sends as much as is taken.
func NewHuge(t testing.TB) (url string, sent *atomic.Int64) {
	sent = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(Huge))
		w.Header().Set("ETag", `"0"`)
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		for b := make([]byte, 1<<16); sent.Load() < 1<<28; sent.Add(int64(len(b))) {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, sent
}

// WantShort demands that a signature of ten gigabytes is refused by a place, before much of it is here.
func WantShort(t testing.TB, o place.Origin, sent *atomic.Int64) {
	t.Helper()
	sent.Store(0)
	b, err := o.Read(t.Context(), manifest.SignatureName, manifest.MaxSignature)
	if !errors.Is(err, tensor.ErrCorrupt) || b != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

// WantAgain demands that a request which gets no answer in time is made again; ask makes it to a server.
func WantAgain(t *testing.T, ask func(url string) func(ctx context.Context) error) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	once := ask(server.URL)
	tries := 0
	err := transfer.Retry(t.Context(), "test", transfer.Options{Stall: 20 * time.Millisecond, Pause: time.Millisecond},
		func(ctx context.Context, _ func(int)) (bool, error) {
			if tries++; tries == 2 {
				return false, nil
			}
			return false, once(ctx)
		})
	if again := (*transfer.Retryable)(nil); err != nil || errors.As(err, &again) || tries != 2 {
		t.Errorf("%d tries, %v", tries, err)
	}
}
