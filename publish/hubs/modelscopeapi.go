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

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// modelScopeAPI is what we ask ModelScope about one repository.
//
// The requests are those of its library modelscope-hub, as its source shows them. They have been tried against a server
// of our own that follows the same source, and never against modelscope.cn. What the source does not show: whether a
// commit is atomic, whether its action "delete" is served, and whether storage accepts an upload without our token,
// which goes to the endpoint's own host only, while that library sends it along to wherever the upload goes.
type modelScopeAPI struct{ repoClient }

func newModelScopeAPI(options hub.Options, repo string, o transfer.Options) (*modelScopeAPI, error) {
	options.Source = hub.ModelScope
	c, err := newRepoClient(options, repo, o)
	return &modelScopeAPI{c}, err
}

func (a *modelScopeAPI) at(elem ...string) *url.URL {
	return a.http.Home.JoinPath("api", "v1").JoinPath(escaped(elem)...)
}

// model is an address of the repository, and repos one of its other half.
func (a *modelScopeAPI) model(elem ...string) *url.URL {
	return a.at("models").JoinPath(a.repo).JoinPath(escaped(elem)...)
}

func (a *modelScopeAPI) repos(elem ...string) *url.URL {
	return a.at("repos", "models").JoinPath(a.repo).JoinPath(escaped(elem)...)
}

// once sends v as JSON, nil for nothing, and gives the Data of the answer.
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

// visibility tells who may see the repository; fs.ErrNotExist if there is none.
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

// create makes the repository, and says whether there was none.
func (a *modelScopeAPI) create(ctx context.Context, private bool, license string) (made bool, err error) {
	owner, name, _ := strings.Cut(a.repo, "/")
	visibility := modelScopePublic
	if private {
		visibility = modelScopePrivate
	}
	_, err = a.ask(ctx, http.MethodPost, a.at("models"), map[string]any{"Path": owner, "Name": name, "Visibility": visibility, "License": license})
	return unlessThere(err)
}

// list gives the files of a revision.
func (a *modelScopeAPI) list(ctx context.Context, revision string) (modelScopeFiles, error) {
	u := a.model("repo", "files")
	u.RawQuery = url.Values{"Revision": {revision}, "Recursive": {"True"}}.Encode()
	data, err := a.ask(ctx, http.MethodGet, u, nil)
	if err != nil {
		return modelScopeFiles{}, err
	}
	return parseModelScopeFiles(data)
}

// file is the address of a file.
func (a *modelScopeAPI) file(revision, name string) *url.URL {
	u := a.model("repo")
	u.RawQuery = url.Values{"Revision": {revision}, "FilePath": {name}}.Encode()
	return u
}

// read gives a file whole, compared with what is listed.
func (a *modelScopeAPI) read(ctx context.Context, revision, name string, f repoFile, limit int64) ([]byte, error) {
	if f.size > limit {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read: %w", name, f.size, limit, tensor.ErrUnsupported)
	}
	u := a.file(revision, name)
	return transfer.ReadBlob(ctx, "read "+name, transfer.Blob{Size: f.size, SHA256: f.sha256}, a.http.Range(u, f.size), a.o)
}

// batch implements lfs.batch.
func (a *modelScopeAPI) batch(ctx context.Context, objects []place.Cargo) (map[string]*lfsUpload, error) {
	list, sizes := lfsObjects(objects)
	data, err := a.ask(ctx, http.MethodPost, a.repos("info", "lfs", "objects", "batch"), map[string]any{"operation": "upload", "objects": list})
	if err != nil {
		return nil, err
	}
	return parseModelScopeBatch(data, sizes, a.http.Home)
}

// stored judges the answer to an upload, which may be a refusal with status 200.
func (a *modelScopeAPI) stored(resp *http.Response) error {
	if resp.StatusCode/100 != 2 {
		return judgeUpload(resp)
	}
	b, err := transfer.ReadAll(resp, 64<<10, nil)
	if again := (*transfer.Retryable)(nil); errors.As(err, &again) {
		return err
	}
	if len(b) == 0 || b[0] != '{' {
		return nil // storage has nothing to say
	}
	if _, err = parseModelScope(resp.StatusCode, b); errors.Is(err, tensor.ErrCorrupt) {
		return nil
	}
	return err
}

// tag gives a revision a name.
func (a *modelScopeAPI) tag(ctx context.Context, name, revision string) error {
	_, err := a.ask(ctx, http.MethodPost, a.model("repo", "tag"), map[string]string{"TagName": name, "Ref": revision})
	return err
}

// refs gives the commits of branches and tags, empty where ModelScope does not say.
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

// modelScopeAction is one file of a commit.
type modelScopeAction struct {
	Action   string `json:"action"`
	Path     string `json:"path"`
	Type     string `json:"type"`
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	Content  string `json:"content"`
	Encoding string `json:"encoding"`
}

// A file that is there is "created" anew: the library knows no other way.
func putInGit(name string, b []byte) modelScopeAction {
	return modelScopeAction{Action: "create", Path: name, Type: "normal", Size: int64(len(b)), Content: base64.StdEncoding.EncodeToString(b), Encoding: "base64"}
}

func putLFS(name, sha256 string, size int64) modelScopeAction {
	return modelScopeAction{Action: "create", Path: name, Type: "lfs", Size: size, SHA256: sha256}
}

func takeAway(name string) modelScopeAction {
	return modelScopeAction{Action: "delete", Path: name, Type: "normal"}
}

// commit sends the actions once: after an error that is retryable they may have been done.
func (a *modelScopeAPI) commit(ctx context.Context, branch, message string, actions []modelScopeAction) error {
	_, err := a.once(ctx, http.MethodPost, a.repos("commit", branch), map[string]any{"commit_message": message, "actions": actions})
	return err
}
