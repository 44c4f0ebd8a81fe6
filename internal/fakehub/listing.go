package fakehub

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// listed is a file as it appears in a listing, which may be false.
type listed struct {
	name string
	*object
}

// list returns the files of a commit sorted by name, changed by the request's fault if it has one.
func (c *call) list(at *commit) []listed {
	var list []listed
	for _, name := range slices.Sorted(maps.Keys(at.files)) {
		list = append(list, listed{name, at.files[name]})
	}
	return lie(faultOf(c.r), list)
}

// lfsInfo describes an LFS file in listings. The key of the digest differs between responses.
func (o *object) lfsInfo(digest string) map[string]any {
	return map[string]any{digest: o.sha256, "size": o.size, "pointerSize": len(o.pointer())}
}

// entry describes a file or a folder for tree and paths-info.
func (c *call) entry(at *commit, name string, o *object, expand bool) map[string]any {
	e := map[string]any{"type": "directory", "path": name, "size": 0, "oid": at.trees[name]}
	if o != nil {
		e["type"], e["size"], e["oid"] = "file", o.size, o.blob
		if o.lfs {
			e["lfs"] = o.lfsInfo("oid")
		}
	}
	if expand {
		last := c.repo.last(at, name)
		e["lastCommit"] = map[string]any{"id": last.id, "title": last.title, "date": date(last.date)}
		if o != nil {
			e["securityFileStatus"] = map[string]any{"status": "safe", "avScan": nil, "pickleImportScan": nil}
		}
	}
	return e
}

// last returns the last commit that changed a file or folder.
func (r *Repo) last(at *commit, name string) *commit {
	same := func(a, b *commit) bool {
		if o := a.files[name]; o != nil {
			return b.files[name] != nil && b.files[name].blob == o.blob
		}
		return b.trees[name] == a.trees[name]
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for {
		p := r.commits[at.parent]
		if p == nil || !same(at, p) {
			return at
		}
		at = p
	}
}

// under returns the files in a folder, and nil for each folder in it; with recursive, also those below.
func (c *call) under(at *commit, dir string, recursive bool) map[string]*object {
	prefix := dir
	if dir != "" {
		prefix += "/"
	}
	found := map[string]*object{}
	for _, f := range c.list(at) {
		rest, ok := strings.CutPrefix(f.name, prefix)
		if !ok {
			continue
		}
		if recursive || !strings.Contains(rest, "/") {
			found[f.name] = f.object
		}
		for i, b := range rest {
			if b == '/' && i > 0 && (recursive || !strings.Contains(rest[:i], "/")) {
				found[prefix+rest[:i]] = nil
			}
		}
	}
	return found
}

// tree lists the entries of a folder, page by page.
func (c *call) tree(revision, dir string) {
	at := c.at(revision)
	if at == nil {
		return
	}
	dir = strings.Trim(dir, "/")
	if _, ok := at.trees[dir]; !ok {
		c.w.Header().Set("X-Repo-Commit", at.id)
		fail(c.w, http.StatusNotFound, "EntryNotFound", dir+" does not exist on \""+revision+"\"")
		return
	}
	query := c.r.URL.Query()
	recursive, _ := strconv.ParseBool(query.Get("recursive"))
	expand, _ := strconv.ParseBool(query.Get("expand"))
	found := c.under(at, dir, recursive)
	names := slices.Sorted(maps.Keys(found))
	if after, err := base64.RawURLEncoding.DecodeString(query.Get("cursor")); err == nil && len(after) > 0 {
		i, _ := slices.BinarySearch(names, string(after)+"\x00")
		names = names[i:]
	}
	page := c.h.o.PageSize
	if page <= 0 {
		if page = 1000; expand {
			page = 50
		}
	}
	if n, err := strconv.Atoi(query.Get("limit")); err == nil && n > 0 && n < page {
		page = n
	}
	if len(names) > page {
		names = names[:page]
		query.Set("cursor", base64.RawURLEncoding.EncodeToString([]byte(names[page-1])))
		c.w.Header().Set("Link", fmt.Sprintf("<%s%s?%s>; rel=\"next\"", c.h.url(onHub), c.r.URL.EscapedPath(), query.Encode()))
	}
	entries := []map[string]any{}
	for _, name := range names {
		entries = append(entries, c.entry(at, name, found[name], expand))
	}
	c.json(entries)
}

// pathsInfo describes some files and folders. Missing ones are left out.
func (c *call) pathsInfo(revision string) {
	at := c.at(revision)
	if at == nil {
		return
	}
	var ask struct {
		Paths  []string `json:"paths"`
		Expand bool     `json:"expand"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	if err != nil {
		return
	}
	if kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")); kind == "application/json" {
		err = json.Unmarshal(body, &ask)
	} else {
		var form url.Values
		form, err = url.ParseQuery(string(body))
		ask.Paths = form["paths"]
		ask.Expand, _ = strconv.ParseBool(form.Get("expand"))
	}
	if err != nil {
		fail(c.w, http.StatusBadRequest, "", "Bad Request")
		return
	}
	byName := map[string]*object{}
	for _, f := range c.list(at) {
		byName[f.name] = f.object
	}
	entries := []map[string]any{}
	for _, name := range ask.Paths {
		name = strings.Trim(name, "/")
		o := byName[name]
		if _, folder := at.trees[name]; o != nil || folder && name != "" {
			entries = append(entries, c.entry(at, name, o, ask.Expand))
		}
	}
	c.json(entries)
}
