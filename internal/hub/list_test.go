package hub

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
)

func TestList(t *testing.T) {
	t.Parallel()
	h := fakehub.New()
	var want []string
	for i := range listPage + 3 {
		name := fmt.Sprintf("org/model-%04d", i)
		h.Repo(name)
		want = append(want, name)
	}
	h.Repo("organisation/other")
	h.Repo("datasets/org/data")
	h.Repo("org/secret").SetPrivate(true)
	s := h.Start(t)
	o := Options{Endpoint: s.URL, CacheDir: t.TempDir()}
	got, err := List(t.Context(), "org", o)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%d repositories, %v", len(got), err)
	}
	o.Token = fakehub.Token
	if got, err = List(t.Context(), "org", o); err != nil || len(got) != len(want)+1 {
		t.Errorf("with a token: %d repositories, %v", len(got), err)
	}
	if got, err = List(t.Context(), "nobody", o); err != nil || len(got) != 0 {
		t.Errorf("nobody has %v, %v", got, err)
	}
	for _, owner := range []string{"", "a/b", "..", "a b"} {
		if _, err := List(t.Context(), owner, o); err == nil {
			t.Errorf("%q is accepted", owner)
		}
	}
	o.Offline = true
	if _, err := List(t.Context(), "org", o); err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Error(err)
	}
}

// A link to another server would get the token's requests; one to the same page would never end.
func TestListRefusesLinks(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"https://example.com/api/models?cursor=x", "", "://"} {
		var s *httptest.Server
		s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to := link
			if to == "" {
				to = s.URL + r.URL.String()
			}
			w.Header().Set("Link", "<"+to+`>; rel="next"`)
			fmt.Fprint(w, `[{"id": "org/a"}]`)
		}))
		defer s.Close()
		if list, err := List(t.Context(), "org", Options{Endpoint: s.URL, CacheDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "leads elsewhere") {
			t.Errorf("%q: %v, %v", link, list, err)
		}
	}
}

func FuzzParseRepos(f *testing.F) {
	for _, s := range []string{`[]`, `[{"id": "org/a"}]`, `[{"id": "../a"}]`, `[{"id": 1}]`, `{`} {
		f.Add([]byte(s), s)
	}
	f.Add([]byte(`[{}]`), `</api/models?cursor=x>; rel="next"`)
	f.Fuzz(func(t *testing.T, b []byte, link string) {
		list, err := parseRepos(b)
		for _, repo := range list {
			if (Ref{Repo: repo}).Check() != nil || err != nil {
				t.Fatalf("%q, %v", list, err)
			}
		}
		home, err := url.Parse("https://hub.example/api/models")
		if err != nil {
			t.Fatal(err)
		}
		c, err := newClient(Options{Endpoint: "https://hub.example"}, "org/*")
		if err != nil {
			t.Fatal(err)
		}
		if next, err := c.hosts[0].following(home, http.Header{"Link": {link}}); err == nil && next != nil && !c.hosts[0].At(next) {
			t.Fatalf("%s leads to %s", link, next)
		}
	})
}
