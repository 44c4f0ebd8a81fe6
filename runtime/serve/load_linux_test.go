package serve_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/llmexport/llmexport/runtime/serve"
)

// resident returns the memory of the process in bytes, after garbage was collected and given back.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Fscan(bytes.NewReader(b), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestLoad sends many short requests of all kinds, every fifth of which is cancelled: memory and goroutines do not grow. LLMEXPORT_REQUESTS is
// their number.
func TestLoad(t *testing.T) {
	requests := 2000
	if n, err := strconv.Atoi(os.Getenv("LLMEXPORT_REQUESTS")); err == nil {
		requests = n
	} else if testing.Short() {
		t.Skip("long; make serve-load runs it")
	}
	s := newServer(t, func(o *serve.Options) { o.Sessions, o.Queue, o.CacheBytes = 3, 16, 8<<20 })
	var ok, gone, other atomic.Int64
	one := func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		path, body := "/v1/completions", fmt.Sprintf(`{"prompt":"%s","max_tokens":%d,"stream":%v}`, strings.Repeat("lord ", 1+i%40), 1+i%7, i%2 == 0)
		switch {
		case i%5 == 0:
			body = `{"prompt":"x",` + endless
		case i%3 == 0:
			path, body = "/v1/chat/completions", fmt.Sprintf(`{%s,"max_tokens":%d,"logprobs":true}`, greeting, 1+i%5)
		case i%7 == 0:
			body = `{"prompt":[[1,2,3,4],[5,6]],"max_tokens":1,"echo":true,"logprobs":1}`
		case i%11 == 0:
			body = `{"prompt":"x","max_tokens":-1}`
		}
		r, err := http.NewRequestWithContext(ctx, "POST", s.url+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		if i%5 == 0 {
			_, _ = resp.Body.Read(make([]byte, 100))
			gone.Add(1)
			return // the context ends
		}
		if _, err := b.ReadFrom(resp.Body); err != nil {
			t.Error(err)
		}
		if resp.StatusCode == http.StatusOK {
			ok.Add(1)
		} else {
			other.Add(1)
		}
	}
	round := func(from, to int) {
		var next atomic.Int64
		next.Store(int64(from))
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				for i := int(next.Add(1)) - 1; i < to; i = int(next.Add(1)) - 1 {
					one(i)
				}
			})
		}
		all.Wait()
		s.await("running", "0")
		http.DefaultClient.CloseIdleConnections()
	}
	warm := max(500, requests/10)
	round(0, warm)
	before, goroutines := resident(t), goruntime.NumGoroutine()
	round(warm, warm+requests)
	after := resident(t)
	t.Logf("%d requests answered, %d cancelled, %d refused; resident memory %d KiB before, %d KiB after; %d goroutines before, %d after",
		ok.Load(), gone.Load(), other.Load(), before>>10, after>>10, goroutines, goruntime.NumGoroutine())
	// Of noise: what the collector and the allocator keep varies by some megabytes.
	const noise = 8 << 20
	if after > before+noise {
		t.Errorf("memory grew from %d to %d bytes", before, after)
	}
	if n := goruntime.NumGoroutine(); n > goroutines+10 {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
}
