package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/rs/zerolog"
)

//go:embed page
var page embed.FS

// policy lets the page use its own files and the server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; media-src data:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

// routes returns the handler of all requests.
func (s *Server) routes() (http.Handler, error) {
	files, err := fs.Sub(page, "page")
	if err != nil {
		return nil, err
	}
	api := http.NewServeMux()
	api.HandleFunc("POST /v1/embeddings", s.document(s.embeddings))
	api.HandleFunc("POST /v1/chat/completions", s.document(s.continues(func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, s.readChat, chatForm) })))
	api.HandleFunc("POST /v1/completions", s.document(s.continues(func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, func(_ context.Context, body []byte) (*completion, error) { return s.readCompletion(body) }, textForm)
	})))
	api.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		s.json(w, map[string]any{"object": "list", "data": []any{s.model()}})
	})
	api.HandleFunc("GET /v1/models/{id...}", func(w http.ResponseWriter, r *http.Request) {
		if id := r.PathValue("id"); id != s.o.Name {
			failf(http.StatusNotFound, "invalid_request_error", "model_not_found", "there is no model %q here, only %q", id, s.o.Name).write(w)
			return
		}
		s.json(w, s.model())
	})
	api.HandleFunc("GET /metrics", s.metrics.serve(s.pool))

	mux := http.NewServeMux()
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/models/", "/metrics"} {
		mux.Handle(path, s.authorized(methods(api)))
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { s.json(w, map[string]string{"status": "ok"}) })
	server := http.FileServerFS(files)
	for _, name := range []string{"/{$}", "/chat.js", "/chat.css"} {
		if s.vectors != nil {
			break // there is nobody to talk to
		}
		mux.HandleFunc("GET "+name, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Security-Policy", policy)
			h.Set("Cache-Control", "no-cache")
			server.ServeHTTP(w, r)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		failf(http.StatusNotFound, "invalid_request_error", "not_found", "there is nothing at %s", r.URL.Path).write(w)
	})
	cross := http.NewCrossOriginProtection()
	for _, o := range s.o.Origins {
		if err := cross.AddTrustedOrigin(o); err != nil {
			return nil, err
		}
	}
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		failf(http.StatusForbidden, "invalid_request_error", "cross_origin", "pages of other origins may not use this server").write(w)
	}))
	return s.named(s.shared(cross.Handler(mux))), nil
}

// methods answers in the form of the interface where a path has other methods.
func methods(api *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := api.Handler(r); pattern == "" {
			failf(http.StatusMethodNotAllowed, "invalid_request_error", "method_not_allowed", "%s is not for %s", r.Method, r.URL.Path).write(w)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// named refuses hosts that are not this machine, if the server is for this machine only: a page of the internet whose name was
// made to point here must not reach the server.
func (s *Server) named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		if s.o.Loopback && !loopback(r.Host) {
			failf(http.StatusForbidden, "invalid_request_error", "host_not_allowed", "this server does not answer for %q", r.Host).write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether a Host header names this machine.
func loopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if ip := net.ParseIP(name); ip != nil {
		return ip.IsLoopback()
	}
	return strings.EqualFold(strings.TrimSuffix(name, "."), "localhost")
}

// shared lets pages of the allowed origins read answers.
func (s *Server) shared(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin == "" || !slices.Contains(s.o.Origins, origin) {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Add("Vary", "Origin")
		h.Set("Access-Control-Allow-Origin", origin)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, POST")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authorized refuses clients without the token. Digests are compared, in a time that does not depend on what is wrong.
func (s *Server) authorized(next http.Handler) http.Handler {
	if s.o.Token == "" {
		return next
	}
	want := sha256.Sum256([]byte(s.o.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(token)))
		if !strings.EqualFold(scheme, "bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			failf(http.StatusUnauthorized, "authentication_error", "invalid_api_key", "the token is missing or wrong: send Authorization: Bearer TOKEN").write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// document refuses what is not JSON. A browser sends JSON to another origin only after it has asked.
func (s *Server) document(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			failf(http.StatusUnsupportedMediaType, "invalid_request_error", "unsupported_media_type", "the Content-Type must be application/json").write(w)
			return
		}
		next(w, r)
	}
}

// model describes the package.
func (s *Server) model() map[string]any {
	if s.vectors != nil {
		return map[string]any{
			"id": s.o.Name, "object": "model", "created": s.o.Created.Unix(), "owned_by": "llmexport", "context_window": s.o.Context,
			"capabilities": map[string]bool{"embeddings": true},
		}
	}
	return map[string]any{
		"id": s.o.Name, "object": "model", "created": s.o.Created.Unix(), "owned_by": "llmexport", "context_window": s.o.Context,
		"capabilities": map[string]bool{
			"chat": s.o.Template != nil, "tools": s.tools,
			"pictures": s.o.Template != nil && s.senses.sees(), "sound": s.o.Template != nil && s.senses.hears(),
			"thinking": s.o.Template != nil && s.o.Template.KnowsThinking(context.Background()),
		},
	}
}

func (s *Server) json(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		zerolog.Ctx(s.end).Debug().Err(err).Msg("answer not written")
	}
}
