// Package serve answers requests in the form of OpenAI's interface with a package: chat completions, completions and models, as
// a whole or as a stream of events, and a page to try it in a browser; or embeddings, with a package that turns texts into vectors.
//
// Call [New], then [Server.Serve]. Requests run at the same time over one copy of the weights, each with keys and values of its
// own, and take turns token by token. What a request asks for is carried out or refused, never ignored.
package serve

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/chat"
	"github.com/llmexport/llmexport/runtime/sentence"
)

// Options of a server.
type Options struct {
	// Name is the model of requests and answers.
	Name string
	// Created is when the package was made.
	Created time.Time
	// Template renders conversations; nil for a package without one.
	Template *chat.Template
	// Reader reads the pictures and clips of conversations; nil for a package that reads texts only.
	Reader *runtime.Reader
	// Sampler holds the sampling options that requests do not set; nil is greedy.
	Sampler *runtime.Sampler
	// Context is the most tokens of a prompt with its answer.
	Context int
	// Sessions is how many requests compute at once, Queue how many may wait for them.
	Sessions, Queue int
	// CacheBytes bounds the keys and values of all requests.
	CacheBytes int64
	// MaxBody bounds the bytes of a request.
	MaxBody int64
	// Timeout bounds the time of a request, including the time in the queue.
	Timeout time.Duration
	// Grace is how long requests may go on after the server was told to end.
	Grace time.Duration
	// Token, if not empty, is what clients have to send.
	Token string
	// Loopback is set if the server listens on this machine only; names of other hosts are refused then.
	Loopback bool
	// Origins of pages in browsers that may use the server, in addition to its own.
	Origins []string
}

// Server answers requests.
type Server struct {
	o       Options
	pkg     *runtime.Package
	vectors *sentence.Model // nil for a package that continues texts
	pool    *pool
	senses  *senses // nil for a package that reads texts only
	tools   bool
	metrics metrics
	handler http.Handler
	end     context.Context // done when running requests have to end
	cut     context.CancelCauseFunc
}

// New returns a server for a package. The session gives it the compiled weights and is not used otherwise.
func New(ctx context.Context, p *runtime.Package, session *runtime.Session, o Options) (*Server, error) {
	pool, err := newPool(ctx, session, &o)
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, pkg: p, pool: pool, tools: o.Template != nil && o.Template.KnowsTools(ctx)}
	if o.Reader != nil {
		s.senses = newSenses(o.Reader, &o)
	}
	if p.Task() != runtime.Generate {
		if s.vectors, err = sentence.Open(p, false); err != nil {
			return nil, err
		}
	}
	s.end, s.cut = context.WithCancelCause(context.Background())
	if s.handler, err = s.routes(); err != nil {
		return nil, err
	}
	return s, nil
}

// Bounds of connections. Bodies are small; an answer may take as long as Options.Timeout, but a client has to read it.
const (
	headerPatience = 10 * time.Second
	bodyPatience   = 30 * time.Second
	writePatience  = 30 * time.Second
	idlePatience   = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// Serve answers requests until ctx ends. Then it refuses new ones and those that wait, lets running ones end for Options.Grace,
// and cuts the rest.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerPatience, IdleTimeout: idlePatience, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) }, ErrorLog: log.New(io.Discard, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.pool.close()
	zerolog.Ctx(ctx).Info().Int("running", s.pool.load().running).Msg("shutting down")
	grace, done := context.WithTimeout(context.WithoutCancel(ctx), s.o.Grace)
	defer done()
	stop := context.AfterFunc(grace, func() { s.cut(errShutdown) })
	defer stop()
	err := h.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		// Those that were cut tell their clients.
		last, done := context.WithTimeout(context.WithoutCancel(ctx), writePatience)
		defer done()
		err = h.Shutdown(last)
	}
	s.cut(errShutdown)
	return errors.Join(err, h.Close())
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// readBody reads the document of a request.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// The deadline is for the body alone: at a later one the server would take the client for gone.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyPatience))
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.o.MaxBody))
	_ = control.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	if err != nil && !errors.As(err, &large) {
		return nil, badf("", "the request cannot be read: %v", err)
	}
	return b, err
}

// bounded returns the context of a request, which ends after Options.Timeout and when the server has to end. done releases it.
func (s *Server) bounded(r *http.Request) (ctx context.Context, done func()) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), s.o.Timeout, errTimeout)
	ctx, cut := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.end, func() { cut(context.Cause(s.end)) })
	return ctx, func() {
		stop()
		cut(nil)
		cancel()
	}
}

// answer runs a request that a reader has understood.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, read func(ctx context.Context, body []byte) (*completion, error), f form) {
	start := time.Now()
	ctx, done := s.bounded(r)
	defer done()
	body, err := s.readBody(w, r)
	var c *completion
	if err == nil {
		c, err = read(ctx, body)
	}
	body = nil // pictures and clips are large
	if c != nil && c.done != nil {
		defer c.done()
	}
	var u usage
	status := http.StatusOK
	if err == nil {
		out := newReply(s, w, f, c)
		u, err = s.run(ctx, c, out.add)
		if err == nil {
			err = out.end(u)
		}
		if err != nil {
			status = out.fail(asAPI(ctx, err))
		}
	} else {
		e := asAPI(ctx, err)
		status = e.status
		e.write(w)
	}
	s.metrics.request(status)
	zerolog.Ctx(r.Context()).Debug().Str("path", r.URL.Path).Int("status", status).Int("prompt", u.Prompt).Int("cached", u.Details.Cached).
		Int("generated", u.Completion).Dur("dur", time.Since(start)).Msg("answered")
}
