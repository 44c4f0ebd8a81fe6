package hub

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fault"
)

func TestResolveRefusesNames(t *testing.T) {
	for _, ref := range []Ref{{}, {Repo: "../x"}, {Repo: "a/b/c"}, {Repo: "a/.."}, {Repo: "a--b/c"}, {Repo: "a/b?x"}, {Repo: "/a"},
		{Repo: "a/b", Revision: "../../x"}, {Repo: "a/b", Revision: "/x"}, {Repo: "a/b", Revision: `x\y`}, {Repo: "a/b", Revision: "x\n"}} {
		if _, err := Resolve(t.Context(), ref, Options{CacheDir: t.TempDir(), Offline: true}); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %v", ref, err)
		}
	}
	for _, endpoint := range []string{"hub.example", "ftp://hub.example", "https://", ":"} {
		if _, err := Resolve(t.Context(), mainRef, Options{CacheDir: t.TempDir(), Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), "endpoint") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if _, err := Resolve(t.Context(), mainRef, Options{}); err == nil || !strings.Contains(err.Error(), "cache directory") {
		t.Error(err)
	}
}

// relisted answers with the hub's list of files after a change.
func relisted(t *testing.T, h *fakehub.Hub, change func([]map[string]any) []map[string]any) func(http.ResponseWriter, *http.Request, bool) bool {
	return func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		if storage || !strings.Contains(r.URL.Path, "/revision/") {
			return false
		}
		rec := httptest.NewRecorder()
		h.Handler().ServeHTTP(rec, r)
		var answer map[string]any
		if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil {
			t.Errorf("%s: %v", rec.Body, err)
			return false
		}
		var list []map[string]any
		for _, s := range answer["siblings"].([]any) {
			list = append(list, s.(map[string]any))
		}
		answer["siblings"] = change(list)
		_ = json.NewEncoder(w).Encode(answer)
		return true
	}
}

func TestResolveRefusesLists(t *testing.T) {
	set := func(name, key string, value any) func([]map[string]any) []map[string]any {
		return func(l []map[string]any) []map[string]any {
			for _, s := range l {
				if s["rfilename"] == name {
					s[key] = value
				}
			}
			return l
		}
	}
	add := func(name string) func([]map[string]any) []map[string]any {
		return func(l []map[string]any) []map[string]any {
			return append(l, map[string]any{"rfilename": name, "size": 1, "blobId": testCommit})
		}
	}
	for _, c := range []struct {
		name string
		list func([]map[string]any) []map[string]any
		is   error
	}{
		{"parent", add("../config.json"), fault.ErrCorrupt},
		{"deep parent", add("a/../../../../evil.safetensors"), fault.ErrCorrupt},
		{"absolute", add("/etc/config.json"), fault.ErrCorrupt},
		{"backslashes", add(`..\..\config.json`), fault.ErrCorrupt},
		{"drive", add(`C:evil.safetensors`), fault.ErrCorrupt},
		{"NUL", add("LICENSE\x00"), fault.ErrCorrupt},
		{"twice", add("config.json"), fault.ErrCorrupt},
		{"digest is a path", set("config.json", "blobId", "../../../../evil"), fault.ErrCorrupt},
		{"negative size", set("config.json", "size", -1), fault.ErrCorrupt},
		{"LFS digest", set(shard1, "lfs", map[string]any{"sha256": "abc", "size": 1}), fault.ErrCorrupt},
		{"no size", set("config.json", "size", nil), fault.ErrUnsupported},
		{"no digest", set("config.json", "blobId", nil), fault.ErrUnsupported},
		{"no safetensors", func([]map[string]any) []map[string]any { return nil }, fault.ErrUnsupported},
		{"wrong type", set("config.json", "size", "big"), fault.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _, _, o := realHub(t, tinyFiles())
			o.Endpoint = through(t, h, relisted(t, h, c.list))
			s, err := Resolve(t.Context(), mainRef, o)
			if !errors.Is(err, c.is) || s != nil || !strings.Contains(err.Error(), testRepo) {
				t.Errorf("got %v, want %v", err, c.is)
			}
			if got := tree(t, o.CacheDir); len(got) != 0 {
				t.Errorf("left %v", got)
			}
			if n := len(h.Stats().Requests); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestResolveStatus(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		code   string
		token  string
		is     error
		want   string
	}{
		{"gated, no token", 401, "GatedRepo", "", fs.ErrPermission, "accept its terms at http"},
		{"gated, no token, hint", 401, "GatedRepo", "", fs.ErrPermission, "set HF_TOKEN"},
		{"gated, no access", 403, "GatedRepo", testToken, fs.ErrPermission, "has no access: accept its terms"},
		{"unknown, no token", 401, "RepoNotFound", "", fs.ErrPermission, "no such repository, or it is private"},
		{"bad token", 401, "", testToken, fs.ErrPermission, "token is not valid"},
		{"forbidden", 403, "", testToken, fs.ErrPermission, "right to read"},
		{"unknown", 404, "RepoNotFound", testToken, fs.ErrNotExist, "no such repository"},
		{"unknown revision", 404, "RevisionNotFound", testToken, fs.ErrNotExist, "no such branch"},
		{"bad request", 400, "", "", nil, "answers 400"},
	} {
		for _, where := range []string{"/api/models/", "/" + testRepo + "/resolve/"} {
			t.Run(c.name+where, func(t *testing.T) {
				h, _, _, o := realHub(t, tinyFiles())
				var tries atomic.Int32
				o.Endpoint = through(t, h, func(w http.ResponseWriter, r *http.Request, storage bool) bool {
					if !storage && strings.HasPrefix(r.URL.Path, where) {
						tries.Add(1)
						w.Header().Set("X-Error-Code", c.code)
						w.Header().Set("X-Error-Message", "You sent "+r.Header.Get("Authorization"))
						w.WriteHeader(c.status)
						return true
					}
					return false
				})
				o.Token = c.token
				o.Parallel = 1
				s, err := Resolve(t.Context(), mainRef, o)
				status := (*StatusError)(nil)
				if !errors.As(err, &status) || s != nil || status.Status != c.status || status.Code != c.code ||
					!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), testToken) {
					t.Fatalf("got %v", err)
				}
				if errors.Is(err, fs.ErrPermission) != (c.is == fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) != (c.is == fs.ErrNotExist) {
					t.Errorf("%v is not %v", err, c.is)
				}
				if n := tries.Load(); n == 0 || n > 2 {
					t.Errorf("%d tries", n)
				}
				for _, name := range tree(t, o.CacheDir) {
					// What is empty needs no request.
					if !strings.HasSuffix(name, "generation_config.json") && !strings.HasSuffix(name, gitSHA1(nil)) {
						t.Errorf("left %s", name)
					}
				}
			})
		}
	}
}
