package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fault"
)

// TestModelScope fetches by the protocol that modelscope-hub speaks with the same server.
func TestModelScope(t *testing.T) {
	files := tinyFiles()
	h, s, commit, o := realHub(t, files)
	h.Repo("org/private").SetPrivate(true).Commit("main", files)
	o.Source = ModelScope
	got, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkFiles(t, got, files, tinyWanted)
	if got.Source != ModelScope || got.Revision != commit || got.Repo != testRepo || got.Listed {
		t.Errorf("%+v", got)
	}
	for _, f := range got.Files {
		if f.SHA256 != sha256Hex(files[f.Name]) { // small files too
			t.Errorf("%s: digest %q", f.Name, f.SHA256)
		}
	}
	if want := filepath.Join(o.CacheDir, "models--modelscope--org--tiny", "snapshots", commit); got.Dir != want {
		t.Errorf("in %s, want %s", got.Dir, want)
	}
	if h.Leaked() {
		t.Error("the token was sent to storage")
	}
	for _, offline := range []bool{true, false} {
		o.Offline = offline
		if got, err = Resolve(t.Context(), Ref{Repo: testRepo, Revision: commit}, o); err != nil || got.Source != ModelScope {
			t.Errorf("%+v, %v", got, err)
		}
	}
	// Neither hub is taken for the other.
	hf := o
	hf.Source, hf.Offline = "", true
	if _, err := Resolve(t.Context(), mainRef, hf); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}

	if _, err := Resolve(t.Context(), Ref{Repo: "org/private"}, o); err != nil {
		t.Error(err)
	}
	o.Token = ""
	for _, ref := range []Ref{{Repo: "org/private", Revision: "side"}, {Repo: "org/none"}, {Repo: testRepo, Revision: "none"}} {
		if _, err := Resolve(t.Context(), ref, o); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "MODELSCOPE_API_TOKEN") {
			t.Errorf("%v: %v", ref, err)
		}
	}
	if _, err := Resolve(t.Context(), Ref{Repo: "tiny"}, o); err == nil || !strings.Contains(err.Error(), "ORG/NAME") {
		t.Error(err)
	}
	h.Fault(fakehub.Rule{Fault: fakehub.ListNames})
	if _, err := Resolve(t.Context(), mainRef, o); !errors.Is(err, fault.ErrCorrupt) {
		t.Error(err)
	}
	s.Close()
}

// TestModelScopeCommit is about the commit behind a branch, of which the hub says more or less.
func TestModelScopeCommit(t *testing.T) {
	old, newest := strings.Repeat("a", 40), strings.Repeat("b", 40)
	file := func(path, revision string, date int, sum string) map[string]any {
		return map[string]any{"Path": path, "Type": "blob", "Size": 1, "Sha256": strings.ToUpper(strings.Repeat(sum, 64)), "Revision": revision,
			"CommittedDate": date}
	}
	files := []map[string]any{file("config.json", old, 1, "1"), file("model.safetensors", newest, 2, "2"), {"Path": "sub", "Type": "tree",
		"Revision": newest, "CommittedDate": 3}}
	for _, c := range []struct {
		name     string
		revision string
		latest   map[string]any
		at       []map[string]any // listed for the newest commit
		want     string
		asked    int
	}{
		{"named", "main", map[string]any{"Id": old}, nil, old, 1},
		{"named in short", "main", map[string]any{"Id": "", "ShortId": newest[:8]}, nil, newest, 1},
		{"not named", "main", nil, files, newest, 2},
		{"another in short", "main", map[string]any{"ShortId": "cccccccc"}, files, newest, 2},
		{"not named, other files", "main", nil, files[1:2], "", 2},
		{"commit", old, nil, nil, old, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				revision := r.URL.Query().Get("Revision")
				asked = append(asked, revision)
				list := files
				if revision == newest {
					list = c.at
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"Success": true, "Code": 200, "Data": map[string]any{"Files": list, "LatestCommitter": c.latest}})
			}))
			defer srv.Close()
			cl, err := newClient(Options{Source: ModelScope, Endpoint: srv.URL}, testRepo)
			if err != nil {
				t.Fatal(err)
			}
			l, err := cl.list(t.Context(), modelscope{}.branch(c.revision), cl.patience())
			if len(asked) != c.asked || c.revision == "main" && asked[0] != "master" {
				t.Errorf("asked for %q", asked)
			}
			if c.want == "" {
				if !errors.Is(err, fault.ErrUnsupported) || !strings.Contains(err.Error(), "name a commit") {
					t.Error(err)
				}
				return
			}
			if err != nil || l.commit != c.want || len(l.files) != 2 || l.files[0].SHA256 != strings.Repeat("1", 64) {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}

func TestModelScopeRefuses(t *testing.T) {
	many := `{"Success":true,"Data":{"Files":[` + strings.TrimSuffix(strings.Repeat(`{"Path":"x"},`, maxModelScope), ",") + `]}}`
	for _, c := range []struct {
		text, want string
		is         error
	}{
		{"{", "the hub's list", fault.ErrCorrupt},
		{`{"Success":false,"Message":"no\u0007 such model"}`, "(no such model)", fs.ErrNotExist},
		{many, "only the first 3000", fault.ErrUnsupported},
		{`{"Success":true,"Data":{"Files":[{"Path":"model.safetensors","Size":1}]}}`, "name a commit", fault.ErrUnsupported},
		{fmt.Sprintf(`{"Success":true,"Data":{"Files":[{"Path":"model.safetensors","Size":1}],"LatestCommitter":{"Id":%q}}}`, testCommit), "no size or digest", fault.ErrUnsupported},
		{fmt.Sprintf(`{"Success":true,"Data":{"Files":[{"Path":"../config.json"}],"LatestCommitter":{"Id":%q}}}`, testCommit), "file name", fault.ErrCorrupt},
	} {
		l, _, err := parseModelScope([]byte(c.text), "master")
		if l != nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: %v", c.text, err)
		}
	}
}
