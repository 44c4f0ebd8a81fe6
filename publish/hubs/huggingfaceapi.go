package hubs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	maxSmallFile  = 16 << 20 // bytes of a file whose content is in git; the hub allows 10 MB
	preuploadHead = 512      // bytes of a file that the hub needs for its decision
	preuploadMany = 256      // files per request
)

// slow is the timeout of requests that keep a server busy before it responds.
func slow(o transfer.Options) transfer.Options {
	o.Stall = max(10*time.Minute, o.Stall)
	return o
}

// repoClient sends requests about one repository to a hub.
type repoClient struct {
	http *transfer.Client
	repo string
	o    transfer.Options
}

func newRepoClient(options hub.Options, repo string, o transfer.Options) (repoClient, error) {
	c, err := hub.Connect(options, repo)
	return repoClient{http: c, repo: repo, o: o}, err
}

// huggingFaceAPI is the API of a Hugging Face hub for one repository.
type huggingFaceAPI struct{ repoClient }

func newHuggingFaceAPI(options hub.Options, repo string, o transfer.Options) (*huggingFaceAPI, error) {
	c, err := newRepoClient(options, repo, o)
	if err != nil {
		return nil, err
	}
	c.http.HandsOut = handsOut
	return &huggingFaceAPI{c}, nil
}

// batchPath is the end of the address of the LFS API.
const batchPath = "/info/lfs/objects/batch"

// handsOut reports whether the response to a request may contain credentials for storage, which may be those of the
// hub.
func handsOut(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, batchPath) }

// at returns an address below the endpoint.
func (a *huggingFaceAPI) at(elem ...string) *url.URL { return a.http.Home.JoinPath(escaped(elem)...) }

// model returns an address of the repository's API.
func (a *huggingFaceAPI) model(elem ...string) *url.URL {
	return a.http.Home.JoinPath("api", "models", a.repo).JoinPath(escaped(elem)...)
}

func escaped(elem []string) []string {
	out := make([]string, len(elem))
	for i, e := range elem {
		out[i] = url.PathEscape(e)
	}
	return out
}

// resolve returns the address of a file.
func (a *huggingFaceAPI) resolve(revision, name string) *url.URL {
	elem := append([]string{"resolve", revision}, strings.Split(name, "/")...)
	return a.http.Home.JoinPath(a.repo).JoinPath(escaped(elem)...)
}

// get reads a response of at most limit bytes.
func (a repoClient) get(ctx context.Context, u *url.URL, limit int64) (b []byte, head http.Header, err error) {
	err = transfer.Retry(ctx, "ask", a.o, func(ctx context.Context, touch func(int)) (bool, error) {
		resp, err := a.http.Get(ctx, u, nil)
		if err != nil {
			return false, err
		}
		defer drain(resp)
		if resp.StatusCode != http.StatusOK {
			return false, a.http.Judge(resp)
		}
		head = resp.Header
		b, err = transfer.ReadAll(resp, limit, touch)
		return false, err
	})
	return b, head, err
}

// send sends v as JSON and reads the response.
func (a *huggingFaceAPI) send(ctx context.Context, method string, u *url.URL, v any) (b []byte, err error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	err = transfer.Retry(ctx, "ask", a.o, func(ctx context.Context, _ func(int)) (bool, error) {
		b, err = a.once(ctx, method, u, "application/json", body)
		return false, err
	})
	return b, err
}

// once is send without retries.
func (a *huggingFaceAPI) once(ctx context.Context, method string, u *url.URL, kind string, body []byte) ([]byte, error) {
	resp, err := a.http.Do(ctx, method, u, http.Header{"Content-Type": {kind}}, inBody(body))
	if err != nil {
		return nil, repeatable(err)
	}
	defer drain(resp)
	if resp.StatusCode/100 != 2 {
		return nil, a.refused(resp)
	}
	return transfer.ReadAll(resp, maxHubAnswer, nil)
}

func inBody(b []byte) transfer.Body {
	return func() (io.Reader, int64, error) { return bytes.NewReader(b), int64(len(b)), nil }
}

// repeatable makes an error without a response retryable, for an idempotent request of any method.
func repeatable(err error) error {
	if transfer.Broken(err) {
		return &transfer.Retryable{Err: err}
	}
	return err
}

// refused adds a hint to the response to a write request.
func (a *huggingFaceAPI) refused(resp *http.Response) error {
	err := a.http.Judge(resp)
	if se := (*transfer.StatusError)(nil); errors.As(err, &se) {
		switch {
		case se.Status == http.StatusConflict && strings.Contains(se.Message, "conflicting operation"):
			return &transfer.Retryable{Err: err} // the hub creates only one repository per account at a time
		case se.Status == http.StatusForbidden:
			se.Hint = "the token needs write access to " + a.repo
		}
	}
	return err
}

// status returns the HTTP status of an error, or 0.
func status(err error) int {
	if se := (*transfer.StatusError)(nil); errors.As(err, &se) {
		return se.Status
	}
	return 0
}

// whoami checks the token: a token that is unknown or read-only is rejected before anything is sent.
func (a *huggingFaceAPI) whoami(ctx context.Context) error {
	b, _, err := a.get(ctx, a.at("api", "whoami-v2"), maxHubAnswer)
	if se := (*transfer.StatusError)(nil); errors.As(err, &se) && se.Status == http.StatusUnauthorized {
		se.Hint = "publishing needs a token: set HF_TOKEN, or run hf auth login"
		if a.http.Authorize != nil {
			se.Hint = "the token is invalid, expired or revoked: set another HF_TOKEN, or run hf auth login"
		}
	}
	if err != nil {
		return err
	}
	var answer struct {
		Auth struct {
			Token struct {
				Role string `json:"role"`
			} `json:"accessToken"`
		} `json:"auth"`
	}
	if err := jsondoc.Decode(b, &answer); err != nil {
		return corruptAnswer("the token", err)
	}
	if answer.Auth.Token.Role == "read" {
		return &transfer.StatusError{Status: http.StatusForbidden, Who: "the hub", Hint: "the token is read-only; create one with write access to " + a.repo}
	}
	return nil
}

// info describes a revision. A missing repository or revision is fs.ErrNotExist.
func (a *huggingFaceAPI) info(ctx context.Context, revision string) (repoInfo, error) {
	b, _, err := a.get(ctx, a.model("revision", revision), maxHubAnswer)
	if err != nil {
		return repoInfo{}, err
	}
	return parseInfo(b)
}

// tree lists the files of a commit.
func (a *huggingFaceAPI) tree(ctx context.Context, commit string) (map[string]repoFile, error) {
	files := map[string]repoFile{}
	u := a.model("tree", commit)
	u.RawQuery = "recursive=true"
	for pages := 0; u != nil; pages++ {
		if pages > maxHubFiles/100 {
			return nil, fmt.Errorf("the hub's list of files is endless: %w", tensor.ErrCorrupt)
		}
		b, head, err := a.get(ctx, u, maxHubAnswer)
		if err != nil {
			return nil, err
		}
		if err := parseTree(b, files); err != nil {
			return nil, err
		}
		if u, err = nextPage(head.Get("Link"), u); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// file reads a whole file of a commit, and compares it with the tree.
func (a *huggingFaceAPI) file(ctx context.Context, commit, name string, f repoFile, limit int64) ([]byte, error) {
	if f.size > limit {
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d: %w", name, f.size, limit, tensor.ErrUnsupported)
	}
	b, err := a.http.ReadFile(ctx, "read "+name, a.resolve(commit, name), limit, a.o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	h := transfer.Blob{Size: int64(len(b))}.Hash()
	h.Write(b)
	if f.git != "" && hex.EncodeToString(h.Sum(nil)) != f.git || f.sha256 != "" && digest.Of(b).Hex() != f.sha256 {
		return nil, fmt.Errorf("%s: the hub's response does not match its list of files: %w", name, tensor.ErrCorrupt)
	}
	return b, nil
}

// create creates the repository, and reports whether there was none.
func (a *huggingFaceAPI) create(ctx context.Context, private bool) (made bool, err error) {
	org, name, ok := strings.Cut(a.repo, "/")
	body := map[string]any{"name": name, "organization": org, "type": "model", "visibility": "public"}
	if !ok {
		body["name"] = a.repo
		delete(body, "organization")
	}
	if private {
		body["visibility"] = "private"
	}
	_, err = a.send(ctx, http.MethodPost, a.at("api", "repos", "create"), body)
	return unlessThere(err)
}

// gate sets who may read the files: "auto", "manual", or "" for everybody.
func (a *huggingFaceAPI) gate(ctx context.Context, gated string) error {
	set := map[string]any{"gated": gated}
	if gated == "" {
		set["gated"] = false
	}
	_, err := a.send(ctx, http.MethodPut, a.model("settings"), set)
	return err
}

// checkCard makes the hub check the head of README.md, which it otherwise does only after the upload.
func (a *huggingFaceAPI) checkCard(ctx context.Context, card []byte) error {
	b, err := a.send(ctx, http.MethodPost, a.at("api", "validate-yaml"), map[string]any{"content": string(card), "repoType": "model"})
	if status(err) == http.StatusBadRequest {
		return fmt.Errorf("%s: the hub rejects its front matter: %w", cardFile, err)
	}
	if err != nil {
		return err
	}
	var answer struct {
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	if err := jsondoc.Decode(b, &answer); err != nil {
		return corruptAnswer("README.md", err)
	}
	if len(answer.Errors) > 0 {
		return fmt.Errorf("%s: the hub rejects its front matter: %s", cardFile, transfer.Said(answer.Errors[0].Message))
	}
	return nil
}

// preupload returns which files must be LFS files.
func (a *huggingFaceAPI) preupload(ctx context.Context, revision string, files []place.Cargo) (map[string]bool, error) {
	lfs := map[string]bool{}
	for len(files) > 0 {
		some := files[:min(len(files), preuploadMany)]
		files = files[len(some):]
		var entries []map[string]any
		var names []string
		for _, c := range some {
			head, err := headOf(c, preuploadHead)
			if err != nil {
				return nil, err
			}
			entries = append(entries, map[string]any{"path": c.Name, "sample": base64.StdEncoding.EncodeToString(head), "size": c.Size})
			names = append(names, c.Name)
		}
		b, err := a.send(ctx, http.MethodPost, a.model("preupload", revision), map[string]any{"files": entries})
		if err != nil {
			return nil, err
		}
		modes, err := parsePreupload(b, names)
		if err != nil {
			return nil, err
		}
		for _, c := range some {
			lfs[c.Name] = modes[c.Name] && c.Size > 0 // storage rejects empty objects
		}
	}
	return lfs, nil
}

// batch implements lfs.batch for an existing branch.
func (a *huggingFaceAPI) batch(ctx context.Context, branch string, objects []place.Cargo) (map[string]*lfsUpload, error) {
	list, sizes := lfsObjects(objects)
	body, err := json.Marshal(map[string]any{
		"operation": "upload", "transfers": []string{"basic", "multipart"}, "hash_algo": "sha256",
		"objects": list, "ref": map[string]string{"name": branch},
	})
	if err != nil {
		return nil, err
	}
	u := a.http.Home.JoinPath(a.repo + ".git" + batchPath)
	var b []byte
	err = transfer.Retry(ctx, "ask", a.o, func(ctx context.Context, _ func(int)) (bool, error) {
		b, err = a.once(ctx, http.MethodPost, u, "application/vnd.git-lfs+json", body)
		return false, err
	})
	if err != nil {
		return nil, err
	}
	if _, err := parseBatch(a.http.Mask(b), sizes, a.http.Home); err != nil {
		return nil, err
	}
	return parseBatch(b, sizes, a.http.Home)
}

// branch creates a branch at a commit; an existing one is left alone.
func (a *huggingFaceAPI) branch(ctx context.Context, name, commit string) (made bool, err error) {
	_, err = a.send(ctx, http.MethodPost, a.model("branch", name), map[string]string{"startingPoint": commit})
	return unlessThere(err)
}

// tag names a commit; an existing tag is left alone.
func (a *huggingFaceAPI) tag(ctx context.Context, name, commit, message string) (made bool, err error) {
	_, err = a.send(ctx, http.MethodPost, a.model("tag", commit), map[string]string{"tag": name, "message": message})
	return unlessThere(err)
}

// unlessThere ignores the error that something exists already.
func unlessThere(err error) (made bool, _ error) {
	if status(err) == http.StatusConflict {
		return false, nil
	}
	return err == nil, err
}

// refs returns the commits of the repository's branches and tags.
func (a *huggingFaceAPI) refs(ctx context.Context) (branches, tags map[string]string, err error) {
	b, _, err := a.get(ctx, a.model("refs"), maxHubAnswer)
	if err != nil {
		return nil, nil, err
	}
	type ref struct {
		Name   string `json:"name"`
		Commit string `json:"targetCommit"`
	}
	var answer struct {
		Branches []ref `json:"branches"`
		Tags     []ref `json:"tags"`
	}
	if err := jsondoc.Decode(b, &answer); err != nil {
		return nil, nil, corruptAnswer("branches", err)
	}
	names := func(list []ref) map[string]string {
		m := map[string]string{}
		for _, r := range list {
			m[r.Name] = r.Commit
		}
		return m
	}
	return names(answer.Branches), names(answer.Tags), nil
}

// remove deletes a branch or a tag; a missing one is not an error.
func (a *huggingFaceAPI) remove(ctx context.Context, kind, name string) error {
	_, err := a.send(ctx, http.MethodDelete, a.model(kind, name), nil)
	if status(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// operation is a line of a commit.
type operation struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

func opHeader(title, description, parent string) operation {
	head := map[string]string{"summary": title, "description": description}
	if parent != "" { // the first commit has none
		head["parentCommit"] = parent
	}
	return operation{"header", head}
}

func opFile(name string, content []byte) operation {
	return operation{"file", map[string]string{"path": name, "content": base64.StdEncoding.EncodeToString(content), "encoding": "base64"}}
}

func opLFS(name, sha256 string, size int64) operation {
	return operation{"lfsFile", map[string]any{"path": name, "algo": "sha256", "oid": sha256, "size": size}}
}

func opDelete(name string) operation {
	return operation{"deletedFile", map[string]string{"path": name}}
}

// commit commits the operations on top of a branch, without retries: after a retryable error it may have succeeded.
func (a *huggingFaceAPI) commit(ctx context.Context, branch string, ops []operation) (string, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	for _, op := range ops {
		if err := enc.Encode(op); err != nil {
			return "", err
		}
	}
	b, err := a.once(ctx, http.MethodPost, a.model("commit", branch), "application/x-ndjson", body.Bytes())
	if err != nil {
		return "", err
	}
	var answer struct {
		OID string `json:"commitOid"`
	}
	if err := jsondoc.Decode(b, &answer); err != nil {
		return "", corruptAnswer("the commit", err)
	}
	if !gitID.MatchString(answer.OID) {
		return "", fmt.Errorf("the hub returned the commit %.60q: %w", cmp.Or(answer.OID, "nothing"), tensor.ErrCorrupt)
	}
	return answer.OID, nil
}
