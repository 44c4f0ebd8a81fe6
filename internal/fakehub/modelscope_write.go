package fakehub

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// modelExists is the code for a name that is taken.
const modelExists = 10010101001

// private is a value of Visibility: 1 is private, 3 internal, 5 public.
const private = 1

// create handles POST /api/v1/models.
func (m *modelScope) create() {
	var a struct {
		Path, Name string
		Visibility int
	}
	if !m.mayWrite() || !m.body(&a) {
		return
	}
	if !validName(a.Path) || !validName(a.Name) {
		m.fail(http.StatusBadRequest, "invalid name")
		return
	}
	repo := m.h.create("models/"+a.Path+"/"+a.Name, a.Visibility == private)
	if repo == nil {
		m.failCode(http.StatusBadRequest, modelExists, "the model already exists")
		return
	}
	m.data(map[string]any{"Model": map[string]any{"Path": a.Path, "Name": a.Name, "Id": repo.id()}})
}

// repos handles requests under /api/v1/repos/models/ORG/NAME: the LFS batch and commits.
func (m *modelScope) repos(s []string) {
	switch path := strings.Join(s, "/"); {
	case m.r.Method != http.MethodPost:
		m.fail(http.StatusNotFound, "not found")
	case !m.mayWrite():
	case path == "info/lfs/objects/batch":
		m.batch()
	case len(s) > 1 && s[0] == "commit":
		m.commit(strings.Join(s[1:], "/"))
	default:
		m.fail(http.StatusNotFound, "not found")
	}
}

// batch returns upload addresses; existing objects have no action. The client sends its token to that address, so it is
// under /open, where storage accepts one.
func (m *modelScope) batch() {
	var a struct {
		Operation string    `json:"operation"`
		Objects   []pointer `json:"objects"`
	}
	if !m.body(&a) {
		return
	}
	objects := []map[string]any{}
	for _, p := range a.Objects {
		if a.Operation != "upload" || !p.valid() {
			m.fail(http.StatusBadRequest, "invalid object")
			return
		}
		e := map[string]any{"oid": p.OID, "size": p.Size}
		if m.h.object(p.OID) == nil {
			href := m.h.url(onStorage) + m.h.signed(http.MethodPut, fmt.Sprintf("/open/%s/%d", p.OID, p.Size))
			e["actions"] = map[string]any{"upload": map[string]any{"href": href}}
		}
		objects = append(objects, e)
	}
	m.data(map[string]any{"objects": objects})
}

// action is one file of a commit.
type action struct {
	Action   string `json:"action"` // "create", "update" or "delete"
	Path     string `json:"path"`
	Type     string `json:"type"` // "normal" or "lfs"
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	Content  string `json:"content"`
	Encoding string `json:"encoding"`
}

// operation converts an action.
func (a *action) operation() (operation, error) {
	op := operation{path: a.Path, size: -1}
	if err := checkPath(a.Path); err != nil {
		return operation{}, err
	}
	switch {
	case a.Action == "delete":
		op.key = "deletedFile"
	case a.Action != "create" && a.Action != "update":
		return operation{}, fmt.Errorf("no action %q", a.Action)
	case a.Type == "lfs" && digestPattern.MatchString(a.SHA256) && a.Size > 0:
		op.key, op.digest, op.size = "lfsFile", a.SHA256, a.Size
	case a.Type == "normal" && a.Encoding == "base64":
		op.key = "file"
		var err error
		if op.content, err = base64.StdEncoding.DecodeString(a.Content); err != nil || int64(len(op.content)) != a.Size {
			return operation{}, fmt.Errorf("%s: the content is not of %d bytes", a.Path, a.Size)
		}
	default:
		return operation{}, fmt.Errorf("%s: no type %q", a.Path, a.Type)
	}
	return op, nil
}

// commit handles POST commit/REVISION: all actions or none.
func (m *modelScope) commit(revision string) {
	var a struct {
		Message string   `json:"commit_message"`
		Actions []action `json:"actions"`
	}
	if !m.body(&a) {
		return
	}
	var ops []operation
	for i := range a.Actions {
		op, err := a.Actions[i].operation()
		if err != nil {
			m.fail(http.StatusBadRequest, err.Error())
			return
		}
		ops = append(ops, op)
	}
	m.apply(revision, &header{Summary: a.Message}, ops)
}

// apply commits operations and responds with the commit.
func (m *modelScope) apply(revision string, head *header, ops []operation) {
	made, _, err := m.repo.commitAll(m.repo.modelScopeBranch(revision), m.user.Name, head, ops, false)
	if err != nil {
		m.fail(http.StatusBadRequest, err.Error())
		return
	}
	m.h.stats.mu.Lock()
	m.h.stats.commits++
	m.h.stats.mu.Unlock()
	m.data(map[string]any{"CommitId": made.id, "oid": made.id})
}
