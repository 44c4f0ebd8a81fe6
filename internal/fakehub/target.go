package fakehub

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// target is the object of a request, for rules and counters.
type target struct {
	file    string // such as "org/name/model.safetensors", if it asks for a file
	content bool   // whether it requests the content of a file
	listing bool
	// redirects reports whether the response will be a redirect to the content.
	redirects bool
}

// targetOf parses the address of a request.
func (h *Hub) targetOf(side int, r *http.Request) target {
	s, err := segments(r.URL)
	if err != nil || len(s) < 2 {
		return target{}
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if side == onStorage {
		// /objects/DIGEST/models/org/name/FILE
		if s[0] != "objects" || len(s) < 5 || !read {
			return target{}
		}
		return target{file: fileName(s[2], s[3:]), content: true}
	}
	if s[0] == "api" && len(s) > 3 {
		switch s[1] {
		case "resolve-cache":
			if name, rest := cutRepo(s[3:]); len(rest) > 1 {
				return target{file: fileName(s[2], append([]string{name}, rest[1:]...)), content: true}
			}
		case "v1":
			return h.modelScopeTarget(s[2:], r.URL.Query())
		case "models", "datasets":
			_, rest := cutRepo(s[2:])
			return target{listing: len(rest) == 0 || slices.Contains([]string{"revision", "tree", "paths-info"}, rest[0])}
		}
		return target{}
	}
	kind := "models"
	if s[0] == "datasets" {
		kind, s = s[0], s[1:]
	}
	if name, rest := cutRepo(s); len(rest) > 2 && rest[0] == "resolve" {
		revision, file := cutRevision(rest[1:])
		t := target{file: fileName(kind, []string{name, file}), content: true, redirects: true}
		if repo := h.find(kind + "/" + name); h.o.Direct && repo != nil {
			t.redirects = repo.redirects(revision, file)
		}
		return t
	}
	return target{}
}

func fileName(kind string, rest []string) string {
	name := strings.Join(rest, "/")
	if kind != "models" {
		name = kind + "/" + name
	}
	return name
}

// redirects reports whether a file is served by storage.
func (r *Repo) redirects(revision, file string) bool {
	at := r.at(revision)
	return at != nil && at.files[file] != nil && at.files[file].lfs
}

// modelScopeTarget is targetOf for requests under /api/v1.
func (h *Hub) modelScopeTarget(s []string, query url.Values) target {
	if len(s) < 4 || !slices.Contains(kinds, s[0]) || s[3] != "repo" {
		return target{}
	}
	if len(s) > 4 {
		return target{listing: s[4] == "files" || s[4] == "tree"}
	}
	file := query.Get("FilePath")
	t := target{file: fileName(s[0], []string{s[1], s[2], file}), content: true}
	if repo := h.find(strings.Join(s[:3], "/")); repo != nil {
		t.redirects = repo.redirects(repo.modelScopeBranch(query.Get("Revision")), file)
	}
	return t
}
