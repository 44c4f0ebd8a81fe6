package fakehub

import (
	"net/http"
	"path"
	"strings"
)

// preupload returns which files must be LFS files, which are ignored, and the objects that they replace.
func (c *call) preupload(revision string) {
	var a struct {
		Files []struct {
			Path string `json:"path"`
			Size int64  `json:"size"`
		} `json:"files"`
		GitIgnore     *string `json:"gitIgnore"`
		GitAttributes *string `json:"gitAttributes"`
	}
	if !c.mayWrite() || !c.body(&a) {
		return
	}
	at := c.repo.at(revision)
	c.repo.mu.RLock()
	empty := len(c.repo.commits) == 0
	c.repo.mu.RUnlock()
	if at == nil && !empty {
		c.at(revision)
		return
	}
	attributes := c.repo.attributes(at)
	if a.GitAttributes != nil {
		attributes = []byte(*a.GitAttributes)
	}
	ignore := ""
	if a.GitIgnore != nil {
		ignore = *a.GitIgnore
	} else if at != nil && at.files[".gitignore"] != nil {
		b, _ := at.files[".gitignore"].bytes()
		ignore = string(b)
	}
	list := []map[string]any{}
	for _, f := range a.Files {
		if err := checkPath(f.Path); err != nil || f.Size < 0 {
			fail(c.w, http.StatusBadRequest, "", "Invalid path or size")
			return
		}
		mode := "regular"
		if c.h.lfs(attributes, f.Path, f.Size) {
			mode = "lfs"
		}
		e := map[string]any{"path": f.Path, "uploadMode": mode, "shouldIgnore": ignored(ignore, f.Path)}
		if at != nil && at.files[f.Path] != nil {
			e["oid"] = at.files[f.Path].etag()
		}
		list = append(list, e)
	}
	c.json(map[string]any{"files": list, "commitOid": c.repo.Head(revision)})
}

// ignored supports three kinds of patterns of gitignore(5): without a slash, whole names, and folders.
func ignored(patterns, name string) bool {
	for line := range strings.Lines(patterns) {
		p := strings.TrimPrefix(strings.TrimSpace(line), "/")
		if p == "" || strings.HasPrefix(p, "#") {
			continue
		}
		dir, isDir := strings.CutSuffix(p, "/")
		if isDir {
			if strings.HasPrefix(name, p) || !strings.Contains(dir, "/") && strings.Contains("/"+name, "/"+p) {
				return true
			}
			continue
		}
		target := name
		if !strings.Contains(p, "/") {
			target = path.Base(name)
		}
		if ok, _ := path.Match(p, target); ok {
			return true
		}
	}
	return false
}
