package hub

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
)

// modelscope is the protocol of modelscope.cn, as spoken by its library modelscope-hub: lists of files with SHA-256, and files
// by name and revision.
type modelscope struct{}

// maxModelScope is the length at which ModelScope silently cuts its list of files.
const maxModelScope = 3000

// modelScopeAnswer is ModelScope's response about a revision.
type modelScopeAnswer struct {
	Success bool
	Message string
	Data    struct {
		Files []struct {
			Path, Type, Sha256 string
			Size               *int64
			Revision           string // the commit that changed the file last
			CommittedDate      int64  // of that commit, in seconds
		}
		// LatestCommitter describes the commit of the revision; the hub sometimes leaves parts of it empty.
		LatestCommitter struct{ Id, ShortId string }
	}
}

// list also finds the commit of a revision if the hub does not report it. Then it takes the commit of the newest file, provided
// that the hub lists the same files for that commit: only the content has to match.
func (m modelscope) list(ctx context.Context, h *host, revision string, touch func(int)) (*listing, error) {
	l, named, err := m.ask(ctx, h, revision, touch)
	if err != nil || named || l.commit == revision {
		return l, err
	}
	at, _, err := m.ask(ctx, h, l.commit, touch)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(at.files, l.files) {
		return nil, fmt.Errorf("ModelScope does not say which commit %s is, and its files are not those of commit %s: name a commit as revision: %w",
			revision, l.commit, fault.ErrUnsupported)
	}
	return l, nil
}

// ask lists the files of a revision. Its commit is exact if the hub has named it.
func (modelscope) ask(ctx context.Context, h *host, revision string, touch func(int)) (l *listing, named bool, err error) {
	u := h.url("api", "v1", "models", h.repo, "repo", "files")
	u.RawQuery = url.Values{"Revision": {revision}, "Recursive": {"True"}}.Encode()
	resp, err := h.Get(ctx, u, nil)
	if err != nil {
		return nil, false, err
	}
	b, err := h.readAnswer(resp, touch)
	if err != nil {
		return nil, false, err
	}
	return parseModelScope(b, revision)
}

// parseModelScope reads a response about a revision.
func parseModelScope(b []byte, revision string) (l *listing, named bool, err error) {
	var answer modelScopeAnswer
	if err := jsondoc.Decode(b, &answer); err != nil {
		return nil, false, fmt.Errorf("the hub's list: %w: %w", err, fault.ErrCorrupt)
	}
	if !answer.Success {
		return nil, false, &StatusError{Status: http.StatusNotFound, Who: "ModelScope", Message: transfer.Said(answer.Message),
			Hint: "there is no such repository or revision"}
	}
	files := answer.Data.Files
	if len(files) >= maxModelScope {
		return nil, false, fmt.Errorf("ModelScope lists only the first %d files of a repository, and this one has as many: %w", maxModelScope, fault.ErrUnsupported)
	}
	commit, date := "", int64(-1)
	for _, f := range files {
		if isCommit(f.Revision) && f.CommittedDate > date {
			commit, date = f.Revision, f.CommittedDate
		}
	}
	latest := answer.Data.LatestCommitter
	switch {
	case isCommit(revision):
		commit, named = revision, true
	case isCommit(latest.Id):
		commit, named = latest.Id, true
	case len(latest.ShortId) >= 7 && strings.HasPrefix(commit, latest.ShortId):
		named = true
	}
	if commit == "" {
		return nil, false, fmt.Errorf("ModelScope does not say which commit %s is: name a commit as revision: %w", revision, fault.ErrUnsupported)
	}
	trees := 0
	for i := range files {
		if files[i].Type == "tree" {
			trees++
			continue
		}
		files[i-trees] = files[i]
	}
	l, err = newListing(commit, len(files)-trees, func(i int) (string, *int64, string, string) {
		f := &files[i]
		return f.Path, f.Size, "", strings.ToLower(f.Sha256)
	})
	return l, named, err
}

func (modelscope) file(h *host, commit, name string) *url.URL {
	u := h.url("api", "v1", "models", h.repo, "repo")
	u.RawQuery = url.Values{"Revision": {commit}, "FilePath": {name}}.Encode()
	return u
}

// access returns nil: the repository's visibility shows whether it is private, but no response that ModelScope's client reads
// shows whether it is gated.
func (modelscope) access(*host) *url.URL { return nil }

// self returns an address that rejects tokens that are not valid; without a token it has nothing to tell.
func (modelscope) self(h *host) *url.URL { return h.url("openapi", "v1", "users", "me") }

// authorize sets both the header and the cookie, as the library does: some parts of the hub read only the cookie.
func (modelscope) authorize(r *http.Request, token string) {
	r.Header.Set("Authorization", "Bearer "+token)
	r.AddCookie(&http.Cookie{Name: "m_session_id", Value: token})
}

func (modelscope) page(h *host) string { return h.url("models", h.repo).String() }

func (modelscope) tokenName() string { return "MODELSCOPE_API_TOKEN" }

func (modelscope) endpointName() string { return "MODELSCOPE_ENDPOINT" }

// branch maps "main", which other hubs have, to the branch that every repository here has.
func (modelscope) branch(revision string) string {
	if revision == "main" {
		return "master"
	}
	return revision
}
