package fakehub

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxCommit bounds the body of a commit, in bytes.
	maxCommit = 512 << 20
	// maxRegular bounds a file that is committed without LFS, in bytes, as the hub does.
	maxRegular = 10 << 20
)

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// header is the first line of a commit.
type header struct {
	Summary      string `json:"summary"`
	Description  string `json:"description"`
	ParentCommit string `json:"parentCommit"`
}

// operation is one of the other lines of a commit.
type operation struct {
	key      string // "file", "lfsFile", "deletedFile", "deletedFolder" or "copyFile"
	path     string
	content  []byte // of a file
	digest   string // of an LFS file, SHA-256 in hex
	size     int64  // of an LFS file, -1 if the line has none
	source   string // of a copy
	revision string // revision of a copy's source, "" for the commit's parent
}

var errCommit = errors.New("the commit's body is invalid")

// parseCommit parses the lines of a commit.
func parseCommit(r io.Reader) (*header, []operation, error) {
	var head *header
	var list []operation
	d := json.NewDecoder(r)
	for {
		var line struct {
			Key   string          `json:"key"`
			Value json.RawMessage `json:"value"`
		}
		err := d.Decode(&line)
		if err == io.EOF && head != nil {
			return head, list, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", len(list)+1, errors.Join(errCommit, err))
		}
		if line.Key == "header" && head == nil {
			head = &header{}
			if err := json.Unmarshal(line.Value, head); err != nil || head.Summary == "" {
				return nil, nil, fmt.Errorf("header: %w", errCommit)
			}
			continue
		}
		op, err := parseOperation(line.Key, line.Value)
		if err != nil || head == nil {
			return nil, nil, fmt.Errorf("line %d: %w", len(list)+1, errors.Join(errCommit, err))
		}
		list = append(list, op)
	}
}

// parseOperation parses one line. copyFile is for hubs that git clients use; huggingface_hub does not send it.
func parseOperation(key string, value json.RawMessage) (operation, error) {
	var v struct {
		Path        string `json:"path"`
		Content     string `json:"content"`
		Encoding    string `json:"encoding"`
		Algo        string `json:"algo"`
		OID         string `json:"oid"`
		Size        *int64 `json:"size"`
		SrcPath     string `json:"srcPath"`
		SrcRevision string `json:"srcRevision"`
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return operation{}, err
	}
	op := operation{key: key, path: v.Path, size: -1}
	if key == "deletedFolder" {
		op.path = strings.TrimSuffix(op.path, "/")
	}
	if err := checkPath(op.path); err != nil {
		return operation{}, err
	}
	switch key {
	case "file":
		op.content = []byte(v.Content)
		if v.Encoding == "base64" {
			var err error
			if op.content, err = base64.StdEncoding.DecodeString(v.Content); err != nil {
				return operation{}, err
			}
		} else if v.Encoding != "" && v.Encoding != "utf-8" {
			return operation{}, fmt.Errorf("encoding %q", v.Encoding)
		}
		if len(op.content) > maxRegular {
			return operation{}, fmt.Errorf("%s: a file of more than %d bytes must be an LFS file", v.Path, maxRegular)
		}
	case "lfsFile":
		if v.Algo != "sha256" || !digestPattern.MatchString(v.OID) || v.Size != nil && *v.Size < 0 {
			return operation{}, fmt.Errorf("%s: no SHA-256 or no size", v.Path)
		}
		op.digest = v.OID
		if v.Size != nil {
			op.size = *v.Size
		}
	case "deletedFile", "deletedFolder":
	case "copyFile":
		if err := checkPath(v.SrcPath); err != nil {
			return operation{}, err
		}
		op.source, op.revision = v.SrcPath, v.SrcRevision
	default:
		return operation{}, fmt.Errorf("no operation %q", key)
	}
	return op, nil
}

// refusal is an error with its HTTP response.
type refusal struct {
	status        int
	code, message string
}

func (e *refusal) Error() string { return e.message }

// refuse responds with an error.
func refuse(w http.ResponseWriter, err error) {
	if r, ok := errors.AsType[*refusal](err); ok {
		fail(w, r.status, r.code, r.message)
		return
	}
	fail(w, http.StatusBadRequest, "", err.Error())
}

// commit handles POST /api/models/ID/commit/REVISION: all operations or none.
func (c *call) commit(revision string) {
	if !c.mayWrite() {
		return
	}
	head, ops, err := parseCommit(http.MaxBytesReader(c.w, c.r.Body, maxCommit))
	if err != nil {
		refuse(c.w, err)
		return
	}
	pr, _ := strconv.ParseBool(c.r.URL.Query().Get("create_pr"))
	made, url, err := c.repo.commitAll(revision, c.user.Name, head, ops, pr)
	if err != nil {
		refuse(c.w, err)
		return
	}
	c.h.stats.mu.Lock()
	c.h.stats.commits++
	c.h.stats.mu.Unlock()
	answer := map[string]any{"success": true, "commitOid": made.id, "commitUrl": c.repo.page() + "/commit/" + made.id, "hookOutput": ""}
	if url != "" {
		answer["pullRequestUrl"] = url
	}
	c.json(answer)
}

// page returns the repository's address.
func (r *Repo) page() string {
	return r.h.url(onHub) + "/" + strings.TrimPrefix(r.key, "models/")
}

// commitAll applies operations on top of a branch, or as a new pull request, whose address it returns.
func (r *Repo) commitAll(revision, author string, head *header, ops []operation, pr bool) (*commit, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ref := "refs/heads/" + revision
	if strings.HasPrefix(revision, "refs/") {
		ref = revision
	}
	parent := r.commits[r.refs[ref]]
	if parent == nil && (len(r.commits) > 0 || revision != "main") {
		return nil, "", &refusal{http.StatusNotFound, "RevisionNotFound", "Invalid rev id: " + revision}
	}
	if head.ParentCommit != "" && (parent == nil || parent.id != head.ParentCommit) {
		return nil, "", &refusal{http.StatusPreconditionFailed, "", "A commit has happened since. Please refresh and try again."}
	}
	changes, err := r.changes(parent, ops)
	if err != nil {
		return nil, "", err
	}
	url := ""
	if pr {
		n := 1
		for r.refs["refs/pr/"+strconv.Itoa(n)] != "" {
			n++
		}
		ref = "refs/pr/" + strconv.Itoa(n)
		url = r.page() + "/discussions/" + strconv.Itoa(n)
		if parent != nil {
			r.refs[ref] = parent.id
		}
	}
	made, err := r.apply(ref, author, head.Summary, head.Description, changes)
	if err != nil && pr {
		delete(r.refs, ref)
	}
	return made, url, err
}

// changes returns the changes that operations make to a commit, which may be nil.
func (r *Repo) changes(parent *commit, ops []operation) ([]change, error) {
	var list []change
	has := func(name string) *object {
		for _, c := range slices.Backward(list) {
			if c.path == name {
				return c.object
			}
		}
		if parent == nil {
			return nil
		}
		return parent.files[name]
	}
	missing := func(name string) error {
		return &refusal{http.StatusNotFound, "EntryNotFound", "A file with this name doesn't exist: " + name}
	}
	for _, op := range ops {
		switch op.key {
		case "file":
			o, err := memory(op.content).as(false)
			if err != nil {
				return nil, err
			}
			list = append(list, change{op.path, o})
		case "lfsFile":
			o := r.h.object(op.digest)
			if o == nil || op.size >= 0 && op.size != o.size {
				return nil, fmt.Errorf("%s: the LFS object %s was not uploaded, or has another size", op.path, op.digest)
			}
			list = append(list, change{op.path, o})
		case "deletedFile":
			if has(op.path) == nil {
				return nil, missing(op.path)
			}
			list = append(list, change{op.path, nil})
		case "deletedFolder":
			n := len(list)
			if parent != nil {
				for name := range parent.files {
					if strings.HasPrefix(name, op.path+"/") && has(name) != nil {
						list = append(list, change{name, nil})
					}
				}
			}
			if len(list) == n {
				return nil, missing(op.path)
			}
		case "copyFile":
			o := has(op.source)
			if op.revision != "" {
				o = nil
				if from := r.resolve(op.revision); from != nil {
					o = from.files[op.source]
				}
			}
			if o == nil {
				return nil, missing(op.source)
			}
			list = append(list, change{op.path, o})
		}
	}
	return list, nil
}
