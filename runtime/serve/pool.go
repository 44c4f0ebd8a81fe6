package serve

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/llmexport/llmexport/runtime"
)

// pool lends sessions over one copy of the weights. It bounds how many compute at once, how many requests wait for one, and
// the memory of all keys and values. Sessions that nobody uses keep their conversation while there is room, so that a request
// that continues it computes only what is new.
type pool struct {
	first           *runtime.Session // of which the others are forks; it computed one token
	sessions, queue int
	bytes           int64

	mu      sync.Mutex
	idle    []*runtime.Session // least recently used first
	running int
	used    int64     // reserved by running sessions and held by idle ones
	waiting []*waiter // in the order in which they came
	closed  bool
}

// lease is a session on loan.
type lease struct {
	*runtime.Session
	reserved int64
}

// waiter is a request that waits for a session.
type waiter struct {
	prompt *runtime.Prompt
	need   int64
	ready  chan *lease // closed without a lease when the pool closes
}

// newPool returns a pool of forks of a session.
func newPool(ctx context.Context, s *runtime.Session, o *Options) (*pool, error) {
	p := &pool{first: s.Fork(), sessions: o.Sessions, queue: o.Queue, bytes: o.CacheBytes}
	p.first.Turns = runtime.NewTurns()
	_, err := p.first.Prefill(ctx, []int32{0})
	return p, err
}

// take waits for a session with room for so many tokens. If prompt is not nil, it may be one whose conversation begins as the
// prompt does.
func (p *pool) take(ctx context.Context, prompt *runtime.Prompt, room int) (*lease, error) {
	w := &waiter{prompt: prompt, need: p.first.BytesFor(room), ready: make(chan *lease, 1)}
	if w.need > p.bytes {
		return nil, badf("", "%d tokens need %d bytes of keys and values; the server has %d for all requests", room, w.need, p.bytes)
	}
	p.mu.Lock()
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, failf(http.StatusServiceUnavailable, "server_error", "shutting_down", "%v", errShutdown)
	case len(p.waiting) == 0 && p.fits(w):
		defer p.mu.Unlock()
		return p.lend(w), nil
	case len(p.waiting) >= p.queue:
		p.mu.Unlock()
		e := failf(http.StatusTooManyRequests, "rate_limit_error", "queue_full", "%d requests are waiting already; try again later", p.queue)
		e.retry = time.Second
		return nil, e
	}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	select {
	case l, ok := <-w.ready:
		if !ok {
			return nil, failf(http.StatusServiceUnavailable, "server_error", "shutting_down", "%v", errShutdown)
		}
		return l, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	} else if l, ok := <-w.ready; ok { // lent in the meantime
		p.put(l)
	}
	p.serveWaiting() // this one may have kept smaller ones from their turn
	return nil, context.Cause(ctx)
}

// fits reports whether a request can have a session now, if idle ones give up their memory.
func (p *pool) fits(w *waiter) bool {
	if p.running >= p.sessions {
		return false
	}
	free := p.bytes - p.used
	for _, s := range p.idle {
		free += s.Bytes()
	}
	return w.need <= free
}

// lend takes an idle session that shares a beginning with the request, or forks a new one, and makes room for it.
func (p *pool) lend(w *waiter) *lease {
	l := &lease{}
	if i := p.like(w.prompt); i >= 0 {
		l.Session = p.idle[i]
		p.forget(i)
	} else {
		l.Session = p.first.Fork()
	}
	l.reserved = max(w.need, l.Bytes())
	for len(p.idle) > 0 && p.used+l.reserved > p.bytes || p.running+len(p.idle) >= p.sessions && len(p.idle) > 0 {
		p.forget(0)
	}
	if p.used+l.reserved > p.bytes { // the memory of an old conversation is larger than what the request needs
		l.Session, l.reserved = p.first.Fork(), w.need
	}
	p.used += l.reserved
	p.running++
	return l
}

// like returns the idle session that shares most with a prompt, or -1 if that is less than half of both: the client that
// had the conversation may continue it.
func (p *pool) like(prompt *runtime.Prompt) int {
	best, most := -1, 0
	if prompt == nil {
		return best
	}
	for i, s := range p.idle {
		if n := s.Shared(prompt); n > most && 2*n >= min(s.Len(), len(prompt.Tokens)) {
			best, most = i, n
		}
	}
	return best
}

// forget gives up an idle session.
func (p *pool) forget(i int) {
	p.used -= p.idle[i].Bytes()
	p.idle = slices.Delete(p.idle, i, i+1)
}

// give returns a session.
func (p *pool) give(l *lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(l)
	p.serveWaiting()
}

func (p *pool) put(l *lease) {
	p.running--
	p.used -= l.reserved
	if n := l.Bytes(); !p.closed && p.used+n <= p.bytes {
		p.used += n
		p.idle = append(p.idle, l.Session)
	}
}

// serveWaiting lends sessions to those who wait, in their order: a large request is not overtaken by small ones.
func (p *pool) serveWaiting() {
	for len(p.waiting) > 0 && p.fits(p.waiting[0]) {
		w := p.waiting[0]
		p.waiting = slices.Delete(p.waiting, 0, 1)
		w.ready <- p.lend(w)
	}
}

// close refuses those who wait and those who come.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, w := range p.waiting {
		close(w.ready)
	}
	p.waiting = nil
}

// load is what a pool is doing.
type load struct {
	running, waiting, idle int
	bytes                  int64
}

func (p *pool) load() load {
	p.mu.Lock()
	defer p.mu.Unlock()
	return load{p.running, len(p.waiting), len(p.idle), p.used}
}
