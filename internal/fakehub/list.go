package fakehub

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// models lists the repositories of an author, as GET /api/models does: page by page, with a link to the next one.
func (c *call) models() {
	q := c.r.URL.Query()
	author := q.Get("author")
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 {
		fail(c.w, http.StatusBadRequest, "", "limit must be a number")
		return
	}
	c.h.mu.RLock()
	var names []string
	for _, r := range c.h.repos {
		private, _ := r.Settings()
		if r.kind == "models" && strings.HasPrefix(r.name, author+"/") && (!private || c.user != nil) {
			names = append(names, r.name)
		}
	}
	c.h.mu.RUnlock()
	slices.Sort(names)
	from, _ := slices.BinarySearch(names, q.Get("cursor"))
	page := names[from:min(from+limit, len(names))]
	if rest := names[from+len(page):]; len(rest) > 0 {
		q.Set("cursor", rest[0])
		c.w.Header().Set("Link", fmt.Sprintf("<%s/api/models?%s>; rel=\"next\"", c.h.url(onHub), q.Encode()))
	}
	list := []map[string]any{}
	for _, name := range page {
		list = append(list, map[string]any{"id": name, "modelId": name})
	}
	c.json(list)
}
