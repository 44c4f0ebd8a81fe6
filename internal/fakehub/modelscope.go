package fakehub

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ModelScope's API under /api/v1, as the client modelscope_hub (src/modelscope_hub/_legacy_api.py) uses it. The
// addresses, the parameters, the envelope Code, Data, Message, Success, and the fields that the client reads come from
// its source. The following are guesses: the numbers in Code of errors, the fields of the response to a commit other
// than Success, that large files are redirected to another host without a token, and that no upload is in parts.
//
// The repositories are the same as in Hugging Face's API. The branch "master" is "main" if there is no master.

// serveModelScope handles requests under /api/v1.
func (h *Hub) serveModelScope(w http.ResponseWriter, r *http.Request, s []string) {
	m := &modelScope{call{h: h, w: w, r: r}}
	if !m.login() {
		return
	}
	switch {
	case len(s) == 1 && s[0] == "login" && r.Method == http.MethodPost:
		m.session()
	case len(s) == 1 && s[0] == "models" && r.Method == http.MethodPost:
		m.create()
	case len(s) > 3 && s[0] == "repos" && slices.Contains(kinds, s[1]):
		if m.find(s[1] + "/" + s[2] + "/" + s[3]) {
			m.repos(s[4:])
		}
	case len(s) > 2 && slices.Contains(kinds, s[0]):
		if m.find(s[0] + "/" + s[1] + "/" + s[2]) {
			m.inside(s[3:])
		}
	default:
		m.fail(http.StatusNotFound, "not found")
	}
}

// modelScope is one request to ModelScope's API.
type modelScope struct{ call }

// login finds the user by the header or the cookie. Without either, the user is nil.
func (m *modelScope) login() bool {
	token, given := strings.CutPrefix(m.r.Header.Get("Authorization"), "Bearer ")
	if c, err := m.r.Cookie(sessionCookie); err == nil && !given {
		token, given = c.Value, true
	}
	if !given {
		return true
	}
	m.h.mu.RLock()
	u, ok := m.h.users[token]
	m.h.mu.RUnlock()
	if !ok {
		m.fail(http.StatusUnauthorized, "invalid token")
		return false
	}
	m.user = &u
	return true
}

// sessionCookie contains ModelScope's token.
const sessionCookie = "m_session_id"

func (m *modelScope) data(v any) {
	m.call.json(map[string]any{"Code": 200, "Data": v, "Message": "success", "RequestId": "0", "Success": true})
}

func (m *modelScope) fail(status int, message string) { m.failCode(status, status, message) }

func (m *modelScope) failCode(status, code int, message string) {
	m.w.Header().Set("Content-Type", "application/json")
	m.w.WriteHeader(status)
	_ = json.NewEncoder(m.w).Encode(map[string]any{"Code": code, "Message": message, "RequestId": "0", "Success": false})
}

// session handles a login. The token is also the session, as in the client.
func (m *modelScope) session() {
	var a struct{ AccessToken string }
	if json.NewDecoder(http.MaxBytesReader(m.w, m.r.Body, maxBody)).Decode(&a) != nil {
		m.fail(http.StatusBadRequest, "bad request")
		return
	}
	m.h.mu.RLock()
	u, ok := m.h.users[a.AccessToken]
	m.h.mu.RUnlock()
	if !ok {
		m.fail(http.StatusUnauthorized, "invalid token")
		return
	}
	http.SetCookie(m.w, &http.Cookie{Name: sessionCookie, Value: a.AccessToken, Path: "/", HttpOnly: true})
	m.data(map[string]any{"AccessToken": a.AccessToken, "Username": u.Name, "Email": u.Name + "@example.org"})
}

// find finds a repository, or responds that there is none.
func (m *modelScope) find(key string) bool {
	m.repo = m.h.find(key)
	if m.repo != nil {
		if private, _ := m.repo.Settings(); !private || m.user != nil && m.user.Role != Stranger {
			return true
		}
	}
	m.fail(http.StatusNotFound, "record not found")
	return false
}

// mayWrite reports whether the user may write; if not, it has written the 401 or 403.
func (m *modelScope) mayWrite() bool {
	switch {
	case m.user == nil:
		m.fail(http.StatusUnauthorized, "not logged in")
	case m.user.Role != Owner:
		m.fail(http.StatusForbidden, "no permission")
	default:
		return true
	}
	return false
}

func (m *modelScope) body(v any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(m.w, m.r.Body, maxCommit)).Decode(v); err != nil {
		m.fail(http.StatusBadRequest, "bad request")
		return false
	}
	return true
}

// modelScopeBranch maps a branch of ModelScope to one of the repository.
func (r *Repo) modelScopeBranch(revision string) string {
	if revision == "" || revision == "master" && r.at("master") == nil {
		return "main"
	}
	return revision
}

// at finds a revision, or responds that there is none.
func (m *modelScope) at(revision string) *commit {
	at := m.repo.at(m.repo.modelScopeBranch(revision))
	if at == nil {
		m.fail(http.StatusNotFound, "the revision does not exist")
	}
	return at
}

// inside handles requests for /api/v1/models/ORG/NAME and below it.
func (m *modelScope) inside(s []string) {
	query := m.r.URL.Query()
	get, post, del := m.r.Method == http.MethodGet || m.r.Method == http.MethodHead, m.r.Method == http.MethodPost, m.r.Method == http.MethodDelete
	switch path := strings.Join(s, "/"); {
	case path == "" && get:
		org, name, _ := strings.Cut(m.repo.name, "/")
		isPrivate, _ := m.repo.Settings()
		visibility := 5
		if isPrivate {
			visibility = private
		}
		m.data(map[string]any{"Path": org, "Name": name, "Id": m.repo.id(), "Visibility": visibility, "Revision": "master"})
	case path == "" && del:
		if m.mayWrite() {
			m.h.mu.Lock()
			delete(m.h.repos, m.repo.key)
			m.h.mu.Unlock()
			m.data(nil)
		}
	case path == "revisions" && get:
		m.revisions()
	case (path == "repo/files" || path == "repo/tree") && get:
		m.list(query)
	case path == "repo" && get:
		m.file(query)
	case path == "repo/tag" && post:
		var a struct{ TagName, Ref string }
		if !m.mayWrite() || !m.body(&a) {
			return
		}
		if at := m.at(a.Ref); at != nil {
			if checkPath(a.TagName) != nil {
				m.fail(http.StatusBadRequest, "invalid name")
				return
			}
			m.repo.Tag(a.TagName, at.id)
			m.data(nil)
		}
	case path == "file" && del:
		if m.mayWrite() {
			m.apply(query.Get("Revision"), &header{Summary: "Delete " + query.Get("FilePath")}, []operation{{key: "deletedFile", path: query.Get("FilePath")}})
		}
	default:
		m.fail(http.StatusNotFound, "not found")
	}
}

// revisions lists branches and tags.
func (m *modelScope) revisions() {
	list := func(prefix string) []map[string]any {
		out := []map[string]any{}
		m.repo.mu.RLock()
		defer m.repo.mu.RUnlock()
		for _, ref := range slices.Sorted(maps.Keys(m.repo.refs)) {
			name, ok := strings.CutPrefix(ref, prefix)
			if !ok {
				continue
			}
			if name == "main" && m.repo.refs["refs/heads/master"] == "" {
				name = "master"
			}
			at := m.repo.commits[m.repo.refs[ref]]
			out = append(out, map[string]any{"Revision": name, "CommitId": at.id, "CreatedAt": at.date.Unix()})
		}
		return out
	}
	m.data(map[string]any{"RevisionMap": map[string]any{"Branches": list("refs/heads/"), "Tags": list("refs/tags/")}})
}

// list lists the files of a revision. Revision of a file is the last commit that changed it.
func (m *modelScope) list(query url.Values) {
	at := m.at(query.Get("Revision"))
	if at == nil {
		return
	}
	recursive, _ := strconv.ParseBool(query.Get("Recursive"))
	found := m.under(at, strings.Trim(query.Get("Root"), "/"), recursive)
	files := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		_, base := split(name)
		last := m.repo.last(at, name)
		e := map[string]any{"Path": name, "Name": base, "Type": "tree", "Size": 0, "Sha256": "", "IsLFS": false, "Revision": last.id,
			"CommittedDate": last.date.Unix(), "CommitMessage": last.title, "CommitterName": last.author, "Mode": "040000"}
		if o := found[name]; o != nil {
			e["Type"], e["Size"], e["Sha256"], e["IsLFS"], e["Mode"] = "blob", o.size, o.sha256, o.lfs, "100644"
		}
		files = append(files, e)
	}
	m.data(map[string]any{"Files": files, "IsVisual": 0, "LatestCommitter": map[string]any{"Id": at.id, "Revision": at.id}})
}

// file serves a file, a large one by a redirect to storage.
func (m *modelScope) file(query url.Values) {
	at := m.at(query.Get("Revision"))
	if at == nil {
		return
	}
	name := query.Get("FilePath")
	o := at.files[name]
	switch {
	case o == nil:
		m.fail(http.StatusNotFound, "the file does not exist")
	case o.lfs:
		redirect(m.w, http.StatusFound, m.h.sign(m.repo, name, o))
	default:
		serveObject(m.w, m.r, o, name)
	}
}
