package fakehub

import "net/http"

func (c *call) createRepo()                                                { c.notFound() }
func (c *call) deleteRepo()                                                { c.notFound() }
func (c *call) preupload(revision string)                                  { c.notFound() }
func (c *call) commit(revision string)                                     { c.notFound() }
func (c *call) branch(name string)                                         { c.notFound() }
func (c *call) tag(name string)                                            { c.notFound() }
func (c *call) settings()                                                  { c.notFound() }
func (c *call) lfs(s []string)                                             { c.notFound() }
func (h *Hub) put(w http.ResponseWriter, r *http.Request, id, rest string) { fail(w, 404, "", "") }
func (h *Hub) serveModelScope(w http.ResponseWriter, r *http.Request, segs []string) {
	fail(w, 404, "", "")
}

type upload struct{}
