package fakehub

import (
	"bytes"
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
	"time"

	"github.com/goccy/go-yaml"
)

// date is a time as the hub writes it.
func date(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// listed is a file as a listing has it, where the listing may lie.
type listed struct {
	name string
	*object
}

// list gives the files of a commit in order of their names, changed by the fault of the request if it has one.
func (c *call) list(at *commit) []listed {
	var list []listed
	for _, name := range slices.Sorted(maps.Keys(at.files)) {
		list = append(list, listed{name, at.files[name]})
	}
	return lie(faultOf(c.r), list)
}

// lfsInfo is what listings say of an LFS file. The names of the digest differ between answers.
func (o *object) lfsInfo(digest string) map[string]any {
	return map[string]any{digest: o.sha256, "size": o.size, "pointerSize": len(o.pointer())}
}

// info answers what is known of a revision.
func (c *call) info(revision string) {
	at := c.at(revision)
	if at == nil {
		return
	}
	private, gated := c.repo.Settings()
	card := c.repo.card(at)
	tags := []string{}
	if l, ok := card["license"].(string); ok {
		tags = append(tags, "license:"+l)
	}
	author, _, _ := strings.Cut(c.repo.name, "/")
	query := c.r.URL.Query()
	blobs, _ := strconv.ParseBool(query.Get("blobs"))
	siblings := []map[string]any{}
	for _, f := range c.list(at) {
		s := map[string]any{"rfilename": f.name}
		if blobs {
			s["size"], s["blobId"] = f.size, f.blob
			if f.lfs {
				s["lfs"] = f.lfsInfo("sha256")
			}
		}
		siblings = append(siblings, s)
	}
	var used int64
	for _, o := range at.files {
		used += o.size
	}
	all := map[string]any{
		"author": author, "sha": at.id, "lastModified": date(at.date), "createdAt": date(c.repo.created), "private": private,
		"gated": false, "disabled": false, "downloads": 0, "likes": 0, "tags": tags, "siblings": siblings, "usedStorage": used,
	}
	if gated != "" {
		all["gated"] = gated
	}
	if card != nil {
		all["cardData"] = card
	}
	// What is asked for by expand is all there is.
	if want := slices.Concat(query["expand"], query["expand[]"]); len(want) > 0 {
		maps.DeleteFunc(all, func(key string, _ any) bool { return !slices.Contains(want, key) })
	}
	all["_id"], all["id"] = c.repo.id(), c.repo.name
	if c.repo.kind == "models" {
		all["modelId"] = c.repo.name
	}
	c.json(all)
}

// id is the repository's number on the hub, 24 hex digits.
func (r *Repo) id() string { return gitID("repo", []byte(r.key))[:24] }

// card reads the block at the head of README.md; nil if there is none.
func (r *Repo) card(at *commit) map[string]any {
	o := at.files["README.md"]
	if o == nil || o.size > 1<<20 {
		return nil
	}
	b, err := o.bytes()
	if err != nil {
		return nil
	}
	b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(b, []byte("---\n"))
	if !ok {
		return nil
	}
	block, _, ok := bytes.Cut(rest, []byte("\n---"))
	if !ok {
		return nil
	}
	var card map[string]any
	if yaml.Unmarshal(block, &card) != nil {
		return nil
	}
	if _, err := json.Marshal(card); err != nil {
		return nil
	}
	return card
}

// whoami tells who the token belongs to.
func (c *call) whoami() {
	if c.user == nil {
		fail(c.w, http.StatusUnauthorized, "", "Invalid username or password.")
		return
	}
	role := "write"
	if c.user.Role != Owner {
		role = "read"
	}
	c.json(map[string]any{"type": "user", "id": gitID("user", []byte(c.user.Name))[:24], "name": c.user.Name, "fullname": c.user.Name,
		"email": c.user.Name + "@example.org", "isPro": false, "orgs": []any{},
		"auth": map[string]any{"type": "access_token", "accessToken": map[string]any{"displayName": "test", "role": role}}})
}

// entry is a file or a folder as tree and paths-info have it.
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

// last is the commit that changed a file or folder last.
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

// tree answers the entries of a folder, page by page.
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

// pathsInfo answers what is known of some files and folders. Names that there are not are left out.
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

// refs answers branches and tags.
func (c *call) refs() {
	out := map[string]any{}
	c.repo.mu.RLock()
	for key, prefix := range map[string]string{"branches": "refs/heads/", "tags": "refs/tags/", "converts": "refs/convert/", "pullRequests": "refs/pr/"} {
		list := []map[string]any{}
		for _, ref := range slices.Sorted(maps.Keys(c.repo.refs)) {
			if name, ok := strings.CutPrefix(ref, prefix); ok {
				list = append(list, map[string]any{"name": name, "ref": ref, "targetCommit": c.repo.refs[ref]})
			}
		}
		out[key] = list
	}
	c.repo.mu.RUnlock()
	if c.r.URL.Query().Get("include_prs") == "" {
		delete(out, "pullRequests")
	}
	c.json(out)
}

// commits answers the history, the latest first.
func (c *call) commits(revision string) {
	if c.at(revision) == nil {
		return
	}
	list := []map[string]any{}
	for _, at := range c.repo.history(revision) {
		list = append(list, map[string]any{"id": at.id, "title": at.title, "message": at.message, "date": date(at.date),
			"authors": []map[string]any{{"user": at.author}}})
	}
	c.json(list)
}
