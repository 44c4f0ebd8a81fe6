package fakehub

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// body parses the JSON of a request, or responds that it is invalid.
func (c *call) body(v any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(c.w, c.r.Body, maxBody)).Decode(v); err != nil {
		fail(c.w, http.StatusBadRequest, "", "Bad Request")
		return false
	}
	return true
}

// wanted is the body of create and delete requests.
type wanted struct {
	Name         string `json:"name"`
	Organization string `json:"organization"`
	Type         string `json:"type"`
	Private      *bool  `json:"private"`
	Visibility   string `json:"visibility"`
}

// key returns the repository's key, or "" if the name is invalid.
func (a *wanted) key(u *User) string {
	if a.Organization == "" {
		a.Organization = u.Name
	}
	kind := a.Type + "s"
	if a.Type == "" {
		kind = "models"
	}
	if !slices.Contains(kinds, kind) || !validName(a.Organization) || !validName(a.Name) {
		return ""
	}
	return kind + "/" + a.Organization + "/" + a.Name
}

// validName follows the rules of validate_repo_id in huggingface_hub.
func validName(s string) bool {
	return s != "" && len(s) <= 96 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}) && !strings.HasPrefix(s, ".") && !strings.HasPrefix(s, "-") && !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "-") &&
		!strings.HasSuffix(s, ".git") && !strings.Contains(s, "--") && !strings.Contains(s, "..")
}

// createRepo handles POST /api/repos/create. A new repository has one commit, with .gitattributes.
func (c *call) createRepo() {
	var a wanted
	if c.r.Method != http.MethodPost {
		c.notFound()
		return
	}
	if !c.mayWrite() || !c.body(&a) {
		return
	}
	key := a.key(c.user)
	if key == "" {
		fail(c.w, http.StatusBadRequest, "", "Invalid repo name")
		return
	}
	repo := c.h.create(key, a.Visibility == "private" || a.Private != nil && *a.Private)
	if repo == nil {
		c.w.Header().Set("Content-Type", "application/json; charset=utf-8")
		c.w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(c.w).Encode(map[string]string{"error": "You already created this model repo", "url": c.h.find(key).page()})
		return
	}
	c.json(map[string]string{"url": repo.page(), "name": repo.name, "id": repo.id()})
}

// create makes a repository with its first commit; nil if the name is taken.
func (h *Hub) create(key string, private bool) *Repo {
	h.mu.Lock()
	if h.repos[key] != nil {
		h.mu.Unlock()
		return nil
	}
	r := newRepo(h, key)
	r.private = private
	r.mu.Lock()
	h.repos[key] = r
	h.mu.Unlock()
	defer r.mu.Unlock()
	o, err := memory(defaultAttributes).as(false)
	if err == nil {
		_, err = r.apply("refs/heads/main", "tester", "initial commit", "", []change{{".gitattributes", o}})
	}
	if err != nil {
		panic("internal error: fakehub: " + err.Error())
	}
	return r
}

// deleteRepo handles DELETE /api/repos/delete.
func (c *call) deleteRepo() {
	var a wanted
	if c.r.Method != http.MethodDelete {
		c.notFound()
		return
	}
	if !c.mayWrite() || !c.body(&a) {
		return
	}
	if !c.open(a.key(c.user)) {
		return
	}
	c.h.mu.Lock()
	delete(c.h.repos, c.repo.key)
	c.h.mu.Unlock()
	c.w.WriteHeader(http.StatusOK)
	_, _ = c.w.Write([]byte("OK"))
}

// settings handles PUT /api/models/ID/settings.
func (c *call) settings() {
	var a struct {
		Private    *bool  `json:"private"`
		Visibility string `json:"visibility"`
		Gated      any    `json:"gated"` // "auto", "manual" or false
	}
	if !c.mayWrite() || !c.body(&a) {
		return
	}
	switch g := a.Gated.(type) {
	case nil:
	case bool:
		if g {
			fail(c.w, http.StatusBadRequest, "", "Invalid gated status")
			return
		}
		c.repo.SetGated("")
	case string:
		if g != "auto" && g != "manual" {
			fail(c.w, http.StatusBadRequest, "", "Invalid gated status")
			return
		}
		c.repo.SetGated(g)
	}
	switch {
	case a.Private != nil:
		c.repo.SetPrivate(*a.Private)
	case a.Visibility != "":
		c.repo.SetPrivate(a.Visibility == "private")
	}
	private, gated := c.repo.Settings()
	answer := map[string]any{"private": private, "gated": false}
	if gated != "" {
		answer["gated"] = gated
	}
	c.json(answer)
}

// branch handles POST and DELETE of /api/models/ID/branch/NAME.
func (c *call) branch(name string) {
	if !c.mayWrite() {
		return
	}
	switch c.r.Method {
	case http.MethodPost:
		var a struct {
			StartingPoint string `json:"startingPoint"`
			Overwrite     bool   `json:"overwrite"`
		}
		if !c.body(&a) {
			return
		}
		if a.StartingPoint == "" {
			a.StartingPoint = "main"
		}
		c.newRef("refs/heads/"+name, a.StartingPoint, a.Overwrite)
	case http.MethodDelete:
		c.deleteRef("refs/heads/" + name)
	default:
		c.notFound()
	}
}

// tag handles POST of /api/models/ID/tag/REVISION and DELETE of /api/models/ID/tag/NAME.
func (c *call) tag(s string) {
	if !c.mayWrite() {
		return
	}
	switch c.r.Method {
	case http.MethodPost:
		var a struct {
			Tag string `json:"tag"`
		}
		if !c.body(&a) {
			return
		}
		c.newRef("refs/tags/"+a.Tag, s, false)
	case http.MethodDelete:
		c.deleteRef("refs/tags/" + s)
	default:
		c.notFound()
	}
}

func (c *call) newRef(ref, revision string, overwrite bool) {
	if err := checkPath(ref); err != nil || strings.HasSuffix(ref, "/") {
		fail(c.w, http.StatusBadRequest, "", "Invalid reference name")
		return
	}
	c.repo.mu.Lock()
	at, exists := c.repo.resolve(revision), c.repo.refs[ref] != ""
	if at != nil && (!exists || overwrite) {
		c.repo.refs[ref] = at.id
	}
	c.repo.mu.Unlock()
	switch {
	case at == nil:
		fail(c.w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
	case exists && !overwrite:
		fail(c.w, http.StatusConflict, "", "Reference already exists: "+ref)
	default:
		c.w.WriteHeader(http.StatusOK)
		_, _ = c.w.Write([]byte("OK"))
	}
}

func (c *call) deleteRef(ref string) {
	c.repo.mu.Lock()
	exists := c.repo.refs[ref] != ""
	delete(c.repo.refs, ref)
	c.repo.mu.Unlock()
	if !exists {
		fail(c.w, http.StatusNotFound, "RevisionNotFound", "Reference does not exist: "+ref)
		return
	}
	c.w.WriteHeader(http.StatusOK)
	_, _ = c.w.Write([]byte("OK"))
}
