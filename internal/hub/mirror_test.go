package hub

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fault"
)

// gone is an address where nobody answers.
const gone = "http://127.0.0.1:1"

func TestMirrors(t *testing.T) {
	files := tinyFiles()
	h, s, commit, o := realHub(t, files)
	_, other, _, _ := realHub(t, map[string][]byte{"README.md": nil}) // lags behind
	empty := fakehub.New().Start(t)
	for _, c := range []struct {
		name     string
		endpoint string
		mirrors  []string
		is       error
		text     string // of the error
	}{
		{"first is there", s.URL, []string{gone}, nil, ""},
		{"endpoint is gone", gone, []string{s.URL}, nil, ""},
		{"first mirror is gone", gone, []string{gone, s.URL}, nil, ""},
		{"first mirror has nothing", gone, []string{empty.URL, s.URL}, nil, ""},
		{"first mirror lags", gone, []string{other.URL, s.URL}, fault.ErrUnsupported, "no safetensors"},
		{"all are gone", gone, []string{gone}, fs.ErrNotExist, "is missing from the cache"},
		{"the endpoint refuses", empty.URL, []string{s.URL}, fs.ErrPermission, "no such repository"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.ResetStats()
			o := o
			o.Endpoint, o.Mirrors, o.CacheDir = c.endpoint, c.mirrors, t.TempDir()
			if c.endpoint != s.URL {
				o.Token = "hf_endpointOnly"
			}
			if c.endpoint == empty.URL {
				o.Token = ""
			}
			got, err := Resolve(t.Context(), mainRef, o)
			if c.is != nil {
				if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkFiles(t, got, files, tinyWanted)
			if c.endpoint == s.URL {
				return
			}
			for _, r := range h.Stats().Requests {
				if r.Authorized {
					t.Errorf("the mirror was sent a token: %+v", r)
				}
			}
			// A mirror's list is not remembered: the endpoint shall be asked.
			if newCache(o, testRepo).recorded(commit) != nil {
				t.Error("the list of a mirror was kept")
			}
			o.Offline = true
			if got, err = Resolve(t.Context(), mainRef, o); err != nil {
				t.Fatal(err)
			}
			checkFiles(t, got, files, tinyWanted)
		})
	}
}

// TestMirrorTakesOver goes on at a mirror when the endpoint, which has given the list, breaks.
func TestMirrorTakesOver(t *testing.T) {
	files := tinyFiles()
	h, s, _, o := realHub(t, files)
	m, mirror, _, _ := realHub(t, files)
	h.Fault(fakehub.Rule{Fault: fakehub.Status, Status: 503, Path: "*/" + shard1})
	o.Mirrors = []string{mirror.URL}
	got, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkFiles(t, got, files, tinyWanted)
	if m.Sent(testRepo+"/"+shard1) == 0 || !got.Listed {
		t.Error("the mirror was not asked")
	}

	// Bytes of a mirror are held to the digests that the endpoint lists.
	m.Repo(testRepo).Commit("main", with(files, map[string][]byte{shard1: shard("z", 300_000, 0)}))
	m.Fault(fakehub.Rule{Fault: fakehub.Flip, After: 1000, Path: testRepo + "/" + shard1})
	o.CacheDir = t.TempDir()
	if _, err := Resolve(t.Context(), mainRef, o); !errors.Is(err, fault.ErrCorrupt) {
		t.Error(err)
	}
	for _, name := range tree(t, o.CacheDir) {
		if strings.HasSuffix(name, sha256Hex(files[shard1])) {
			t.Errorf("%s has its name", name)
		}
	}
	s.Close()
}

func TestEndpointRefused(t *testing.T) {
	for _, c := range []struct{ name, address, want string }{
		{"password", "https://me:secret@hub.example", "set a token"},
		{"query", "https://hub.example/?token=secret", "query"},
		{"scheme", "ftp://hub.example", "not an http"},
		{"none", "secret", "not an http"},
	} {
		for _, o := range []Options{{Endpoint: c.address}, {Mirrors: []string{c.address}}} {
			o.CacheDir = t.TempDir()
			_, err := Resolve(t.Context(), mainRef, o)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	o := Options{CacheDir: t.TempDir(), Mirrors: make([]string, 5)}
	if _, err := Resolve(t.Context(), mainRef, o); err == nil || !strings.Contains(err.Error(), "5 mirrors") {
		t.Error(err)
	}
	for _, token := range []string{"hf_a\nb", "hf_a b", "hf_\x00", "hf_é", "hf_\r\nX-Evil: 1"} {
		_, err := Resolve(t.Context(), mainRef, Options{CacheDir: t.TempDir(), Token: token})
		if err == nil || !strings.Contains(err.Error(), "the token") || strings.Contains(err.Error(), "hf_") {
			t.Errorf("%q: %v", token, err)
		}
	}
}

func TestAt(t *testing.T) {
	o := Options{Endpoint: "https://hub.example", Token: "t"}
	for address, token := range map[string]string{"https://hub.example": "t", "https://HUB.example/": "t", "http://hub.example": "", "https://hub.example:444": "",
		"https://hub.example.evil": "", "https://evil": "", "::": ""} {
		if got := o.At(address); got.Token != token {
			t.Errorf("%s: token %q", address, got.Token)
		}
	}
	if got := (Options{Token: "t"}).At(DefaultEndpoint + "/"); got.Token != "t" || got.Endpoint != DefaultEndpoint {
		t.Errorf("%+v", got.Endpoint)
	}
}
