package serve

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
)

// metrics count what a server has done.
type metrics struct {
	mu                           sync.Mutex
	requests                     map[int]int64 // by status
	computed, cached, generation int64         // tokens
}

func (m *metrics) request(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.requests == nil {
		m.requests = map[int]int64{}
	}
	m.requests[status]++
}

// add counts the tokens of a choice.
func (m *metrics) add(computed, cached, generated int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.computed += int64(computed)
	m.cached += int64(cached)
	m.generation += int64(generated)
}

// serve writes the counts in the text format of Prometheus.
func (m *metrics) serve(p *pool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		l := p.load()
		m.mu.Lock()
		defer m.mu.Unlock()
		one := func(name, kind, help string, value int64) {
			fmt.Fprintf(w, "# HELP llmexport_%s %s\n# TYPE llmexport_%s %s\nllmexport_%s %d\n", name, help, name, kind, name, value)
		}
		one("prompt_tokens_total", "counter", "Tokens of prompts that were computed.", m.computed)
		one("cached_tokens_total", "counter", "Tokens of prompts that were cached.", m.cached)
		one("generated_tokens_total", "counter", "Tokens that were generated.", m.generation)
		one("running", "gauge", "Requests that compute.", int64(l.running))
		one("waiting", "gauge", "Requests in the queue.", int64(l.waiting))
		one("idle_sessions", "gauge", "Conversations that are kept.", int64(l.idle))
		one("cache_bytes", "gauge", "Bytes reserved for keys and values.", l.bytes)
		fmt.Fprint(w, "# HELP llmexport_requests_total Requests by status.\n# TYPE llmexport_requests_total counter\n")
		for _, status := range slices.Sorted(maps.Keys(m.requests)) {
			fmt.Fprintf(w, "llmexport_requests_total{status=\"%d\"} %d\n", status, m.requests[status])
		}
	}
}
