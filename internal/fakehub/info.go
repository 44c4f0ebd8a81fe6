package fakehub

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// date formats a time as the hub does.
func date(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// info returns the facts about a revision.
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
	// All fields are there already, so expand selects from them.
	if want := slices.Concat(query["expand"], query["expand[]"]); len(want) > 0 {
		maps.DeleteFunc(all, func(key string, _ any) bool { return !slices.Contains(want, key) })
	}
	all["_id"], all["id"] = c.repo.id(), c.repo.name
	if c.repo.kind == "models" {
		all["modelId"] = c.repo.name
	}
	c.json(all)
}

// id returns the repository's number on the hub, 24 hex digits.
func (r *Repo) id() string { return gitID("repo", []byte(r.key))[:24] }

// card parses the front matter of README.md; nil if there is none.
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

// whoami returns the owner of the token.
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

// refs returns branches and tags.
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

// commits returns the history, latest first.
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
