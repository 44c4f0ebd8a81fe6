package hubs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// modelScopeAPI is the API of ModelScope for one repository.
//
// The requests follow the source of its library modelscope-hub. They have been tested against a server of our own that
// follows the same source, and never against modelscope.cn. The source leaves open whether a commit is atomic, whether
// the action "delete" is supported, and whether storage accepts an upload without our token, which we send only to the
// endpoint's own host, while that library sends it to any upload address.
type modelScopeAPI struct{ repoClient }

func newModelScopeAPI(options hub.Options, repo string, o transfer.Options) (*modelScopeAPI, error) {
	options.Source = hub.ModelScope
	c, err := newRepoClient(options, repo, o)
	return &modelScopeAPI{c}, err
}

func (a *modelScopeAPI) at(elem ...string) *url.URL {
	return a.http.Home.JoinPath("api", "v1").JoinPath(escaped(elem)...)
}

// model returns an address of the repository, repos one in the other half of the API.
func (a *modelScopeAPI) model(elem ...string) *url.URL {
	return a.at("models").JoinPath(a.repo).JoinPath(escaped(elem)...)
}

func (a *modelScopeAPI) repos(elem ...string) *url.URL {
	return a.at("repos", "models").JoinPath(a.repo).JoinPath(escaped(elem)...)
}

// once sends v as JSON, or nothing if it is nil, and returns the Data of the response.
func (a *modelScopeAPI) once(ctx context.Context, method string, u *url.URL, v any) (json.RawMessage, error) {
	var body transfer.Body
	header := http.Header{}
	if v != nil {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		body = inBody(b)
		header.Set("Content-Type", "application/json")
	}
	resp, err := a.http.Do(ctx, method, u, header, body)
	if err != nil {
		return nil, repeatable(err)
	}
	defer drain(resp)
	if transfer.Transient(resp.StatusCode) {
		return nil, a.http.Judge(resp)
	}
	b, err := transfer.ReadAll(resp, maxHubAnswer, nil)
	if err != nil {
		return nil, err
	}
	return parseModelScope(resp.StatusCode, b)
}

func (a *modelScopeAPI) ask(ctx context.Context, method string, u *url.URL, v any) (data json.RawMessage, err error) {
	err = transfer.Retry(ctx, "ask", a.o, func(ctx context.Context, _ func(int)) (bool, error) {
		data, err = a.once(ctx, method, u, v)
		return false, err
	})
	return data, err
}

// visibility of a repository.
const (
	modelScopePrivate = 1
	modelScopePublic  = 5
)

// visibility returns who may read the repository; fs.ErrNotExist if it does not exist.
func (a *modelScopeAPI) visibility(ctx context.Context) (int, error) {
	data, err := a.ask(ctx, http.MethodGet, a.model(), nil)
	if err != nil {
		return 0, err
	}
	var m struct{ Visibility int }
	if err := jsondoc.Decode(data, &m); err != nil {
		return 0, corruptAnswer("the repository", err)
	}
	return m.Visibility, nil
}

// create creates the repository, and reports whether there was none.
func (a *modelScopeAPI) create(ctx context.Context, private bool, license string) (made bool, err error) {
	owner, name, _ := strings.Cut(a.repo, "/")
	visibility := modelScopePublic
	if private {
		visibility = modelScopePrivate
	}
	_, err = a.ask(ctx, http.MethodPost, a.at("models"), map[string]any{"Path": owner, "Name": name, "Visibility": visibility, "License": license})
	return unlessThere(err)
}

// list returns the files of a revision.
func (a *modelScopeAPI) list(ctx context.Context, revision string) (modelScopeFiles, error) {
	u := a.model("repo", "files")
	u.RawQuery = url.Values{"Revision": {revision}, "Recursive": {"True"}}.Encode()
	data, err := a.ask(ctx, http.MethodGet, u, nil)
	if err != nil {
		return modelScopeFiles{}, err
	}
	return parseModelScopeFiles(data)
}

// file returns the address of a file.
func (a *modelScopeAPI) file(revision, name string) *url.URL {
	u := a.model("repo")
	u.RawQuery = url.Values{"Revision": {revision}, "FilePath": {name}}.Encode()
	return u
}

// read reads a whole file, and compares it with the list of files.
func (a *modelScopeAPI) read(ctx context.Context, revision, name string, f repoFile, limit int64) ([]byte, error) {
	if f.size > limit {
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d: %w", name, f.size, limit, tensor.ErrUnsupported)
	}
	u := a.file(revision, name)
	return transfer.ReadBlob(ctx, "read "+name, transfer.Blob{Size: f.size, SHA256: f.sha256}, a.http.Range(u, f.size), a.o)
}

func (a *modelScopeAPI) batch(ctx context.Context, objects []place.Cargo) (map[string]*lfsUpload, error) {
	list, sizes := lfsObjects(objects)
	data, err := a.ask(ctx, http.MethodPost, a.repos("info", "lfs", "objects", "batch"), map[string]any{"operation": "upload", "objects": list})
	if err != nil {
		return nil, err
	}
	return parseModelScopeBatch(data, sizes, a.http.Home)
}

// stored checks the response to an upload, which may report an error with status 200.
func (a *modelScopeAPI) stored(resp *http.Response) error {
	if resp.StatusCode/100 != 2 {
		return judgeUpload(resp)
	}
	b, err := transfer.ReadAll(resp, 64<<10, nil)
	if again := (*transfer.Retryable)(nil); errors.As(err, &again) {
		return err
	}
	if len(b) == 0 || b[0] != '{' {
		return nil // an empty response of storage
	}
	if _, err = parseModelScope(resp.StatusCode, b); errors.Is(err, tensor.ErrCorrupt) {
		return nil
	}
	return err
}

// tag tags a revision.
func (a *modelScopeAPI) tag(ctx context.Context, name, revision string) error {
	_, err := a.ask(ctx, http.MethodPost, a.model("repo", "tag"), map[string]string{"TagName": name, "Ref": revision})
	return err
}

// refs returns the commits of branches and tags, empty where ModelScope does not report them.
func (a *modelScopeAPI) refs(ctx context.Context) (branches, tags map[string]string, err error) {
	data, err := a.ask(ctx, http.MethodGet, a.model("revisions"), nil)
	if err != nil {
		return nil, nil, err
	}
	type ref struct{ Revision, CommitId string }
	var answer struct {
		RevisionMap struct{ Branches, Tags []ref }
	}
	if err := jsondoc.Decode(data, &answer); err != nil {
		return nil, nil, corruptAnswer("branches", err)
	}
	names := func(list []ref) map[string]string {
		m := map[string]string{}
		for _, r := range list {
			m[r.Revision] = r.CommitId
		}
		return m
	}
	return names(answer.RevisionMap.Branches), names(answer.RevisionMap.Tags), nil
}

// modelScopeAction is a file of a commit.
type modelScopeAction struct {
	Action   string `json:"action"`
	Path     string `json:"path"`
	Type     string `json:"type"`
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	Content  string `json:"content"`
	Encoding string `json:"encoding"`
}

// An existing file is "created" again: the library knows no other way.
func putInGit(name string, b []byte) modelScopeAction {
	return modelScopeAction{Action: "create", Path: name, Type: "normal", Size: int64(len(b)), Content: base64.StdEncoding.EncodeToString(b), Encoding: "base64"}
}

func putLFS(name, sha256 string, size int64) modelScopeAction {
	return modelScopeAction{Action: "create", Path: name, Type: "lfs", Size: size, SHA256: sha256}
}

func takeAway(name string) modelScopeAction {
	return modelScopeAction{Action: "delete", Path: name, Type: "normal"}
}

// commit sends the actions without retries: after a retryable error they may have succeeded.
func (a *modelScopeAPI) commit(ctx context.Context, branch, message string, actions []modelScopeAction) error {
	_, err := a.once(ctx, http.MethodPost, a.repos("commit", branch), map[string]any{"commit_message": message, "actions": actions})
	return err
}
