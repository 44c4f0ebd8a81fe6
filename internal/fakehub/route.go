package fakehub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxBody bounds a request body in memory, in bytes.
const maxBody = 64 << 20

// serveHub handles requests to the hub.
func (h *Hub) serveHub(w http.ResponseWriter, r *http.Request) {
	segments, err := segments(r.URL)
	if err != nil {
		fail(w, http.StatusBadRequest, "", "Bad Request")
		return
	}
	switch {
	case r.URL.Path == "/_faults":
		h.serveFaults(w, r)
		return
	case r.URL.Path == "/_stats":
		h.serveStats(w, r)
		return
	case len(segments) > 1 && segments[0] == "api" && segments[1] == "v1":
		h.serveModelScope(w, r, segments[2:])
		return
	}
	user, ok := h.user(w, r)
	if !ok {
		return
	}
	c := &call{h: h, w: w, r: r, user: user}
	switch {
	case len(segments) > 1 && segments[0] == "api":
		c.api(segments[1:])
	default:
		c.files(segments)
	}
}

// segments returns the elements of an address's path, each unescaped by itself: a revision may contain slashes.
func segments(u *url.URL) ([]string, error) {
	list := strings.Split(strings.Trim(u.EscapedPath(), "/"), "/")
	for i, s := range list {
		var err error
		if list[i], err = url.PathUnescape(s); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// user returns the user of a request; nil if anonymous. If the token is unknown, it responds itself.
func (h *Hub) user(w http.ResponseWriter, r *http.Request) (*User, bool) {
	given := r.Header.Get("Authorization")
	if given == "" {
		return nil, true
	}
	token, _ := strings.CutPrefix(given, "Bearer ")
	if name, password, ok := r.BasicAuth(); ok && name != "" {
		token = password // as git sends it
	}
	h.mu.RLock()
	u, ok := h.users[token]
	h.mu.RUnlock()
	if !ok {
		fail(w, http.StatusUnauthorized, "", "Invalid credentials in Authorization header")
		return nil, false
	}
	return &u, true
}

// call is one request to the hub's API.
type call struct {
	h    *Hub
	w    http.ResponseWriter
	r    *http.Request
	user *User // nil if without a token
	repo *Repo
}

// api handles requests under /api.
func (c *call) api(s []string) {
	switch {
	case s[0] == "whoami-v2":
		c.whoami()
	case s[0] == "repos" && len(s) == 2 && s[1] == "create":
		c.createRepo()
	case s[0] == "repos" && len(s) == 2 && s[1] == "delete":
		c.deleteRepo()
	case s[0] == "complete_multipart":
		c.complete()
	case s[0] == "models" && len(s) == 1:
		c.models()
	case s[0] == "validate-yaml":
		c.json(map[string]any{"errors": []any{}, "warnings": []any{}})
	case s[0] == "resolve-cache" && len(s) > 4 && slices.Contains(kinds, s[1]):
		// /api/resolve-cache/models/org/name/COMMIT/PATH
		name, rest := cutRepo(s[2:])
		if c.open(s[1]+"/"+name) && len(rest) > 1 {
			c.resolve(rest[0], strings.Join(rest[1:], "/"), true)
		} else if c.repo != nil {
			c.notFound()
		}
	case slices.Contains(kinds, s[0]) && len(s) > 1:
		name, rest := cutRepo(s[1:])
		if !c.open(s[0] + "/" + name) {
			return
		}
		action := ""
		if len(rest) > 0 {
			action, rest = rest[0], rest[1:]
		}
		c.repoAPI(action, rest)
	default:
		c.notFound()
	}
}

// actions are the path elements that may follow the name of a repository.
var actions = []string{"revision", "tree", "paths-info", "refs", "commits", "commit", "preupload", "branch", "tag", "settings", "resolve"}

// cutRepo splits off the name of a repository, which has one or two elements.
func cutRepo(s []string) (name string, rest []string) {
	if len(s) == 1 || slices.Contains(actions, s[1]) || commitPattern.MatchString(s[1]) {
		return s[0], s[1:]
	}
	return s[0] + "/" + s[1], s[2:]
}

func (c *call) repoAPI(action string, rest []string) {
	get, post := c.r.Method == http.MethodGet || c.r.Method == http.MethodHead, c.r.Method == http.MethodPost
	switch {
	case action == "" && get:
		c.info("main")
	case action == "revision" && get && len(rest) > 0:
		c.info(strings.Join(rest, "/"))
	case action == "tree" && get && len(rest) > 0:
		revision, dir := cutRevision(rest)
		c.tree(revision, dir)
	case action == "paths-info" && post && len(rest) > 0:
		c.pathsInfo(strings.Join(rest, "/"))
	case action == "refs" && get && len(rest) == 0:
		c.refs()
	case action == "commits" && get && len(rest) > 0:
		c.commits(strings.Join(rest, "/"))
	case action == "resolve" && get && len(rest) > 1:
		revision, name := cutRevision(rest)
		c.resolve(revision, name, false)
	case action == "preupload" && post && len(rest) > 0:
		c.preupload(strings.Join(rest, "/"))
	case action == "commit" && post && len(rest) > 0:
		c.commit(strings.Join(rest, "/"))
	case action == "branch" && len(rest) > 0:
		c.branch(strings.Join(rest, "/"))
	case action == "tag" && len(rest) > 0:
		c.tag(strings.Join(rest, "/"))
	case action == "settings" && c.r.Method == http.MethodPut && len(rest) == 0:
		c.settings()
	default:
		c.notFound()
	}
}

// cutRevision splits a revision from the name of a file. Slashes in revisions are escaped, except that clients send
// refs/pr/1 unescaped.
func cutRevision(rest []string) (revision, name string) {
	n := 1
	if len(rest) >= 3 && rest[0] == "refs" {
		n = 3
	}
	return strings.Join(rest[:n], "/"), strings.Join(rest[n:], "/")
}

// files handles /org/name/resolve/REVISION/PATH, and the LFS API at /org/name.git/info/lfs.
func (c *call) files(s []string) {
	kind := "models"
	if len(s) > 1 && s[0] == "datasets" {
		kind, s = s[0], s[1:]
	}
	if i := slices.Index(s, "info"); i > 0 && i <= 2 && strings.HasSuffix(s[i-1], ".git") {
		name := strings.TrimSuffix(strings.Join(s[:i], "/"), ".git")
		if c.open(kind + "/" + name) {
			c.lfs(s[i+1:])
		}
		return
	}
	name, rest := cutRepo(s)
	if len(rest) < 3 || rest[0] != "resolve" && rest[0] != "raw" {
		c.notFound()
		return
	}
	if c.open(kind + "/" + name) {
		revision, file := cutRevision(rest[1:])
		c.resolve(revision, file, false)
	}
}

// open finds a repository, or responds as the hub does, which hides repositories that the user may not read.
func (c *call) open(key string) bool {
	repo := c.h.find(key)
	if repo != nil {
		if private, _ := repo.Settings(); !private || c.user != nil && c.user.Role != Stranger {
			c.repo = repo
			return true
		}
	}
	status := http.StatusNotFound
	if c.user == nil {
		status = http.StatusUnauthorized
	}
	fail(c.w, status, "RepoNotFound", "Repository not found")
	return false
}

// mayWrite reports whether the user may write; if not, it has written the 401 or 403.
func (c *call) mayWrite() bool {
	switch {
	case c.user == nil:
		fail(c.w, http.StatusUnauthorized, "", "Invalid username or password.")
	case c.user.Role != Owner:
		fail(c.w, http.StatusForbidden, "", "You don't have the rights to write to this repository")
	default:
		return true
	}
	return false
}

// at finds a revision, or responds that there is none.
func (c *call) at(revision string) *commit {
	found := c.repo.at(revision)
	if found == nil {
		fail(c.w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
	}
	return found
}

func (c *call) notFound() {
	fail(c.w, http.StatusNotFound, "", "Sorry, we can't find the page you are looking for.")
}

// fail responds with an error as the hub does.
func fail(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": message})
}

// json responds with v, or with 304.
func (c *call) json(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("internal error: fakehub: %v", err))
	}
	sum := sha256.Sum256(b)
	etag := `W/"` + hex.EncodeToString(sum[:12]) + `"`
	head := c.w.Header()
	if c.r.Method == http.MethodGet || c.r.Method == http.MethodHead {
		head.Set("ETag", etag)
		if given := c.r.Header.Get("If-None-Match"); given == "*" || slices.ContainsFunc(strings.Split(given, ","), func(s string) bool {
			return strings.TrimPrefix(strings.TrimSpace(s), "W/") == strings.TrimPrefix(etag, "W/")
		}) {
			c.w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	head.Set("Content-Type", "application/json; charset=utf-8")
	head.Set("Content-Length", fmt.Sprint(len(b)))
	_, _ = c.w.Write(b)
}
