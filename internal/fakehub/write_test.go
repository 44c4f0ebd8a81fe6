package fakehub

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestGitNames compares names of trees and commits with those that git 2.39 gave to the same files.
func TestGitNames(t *testing.T) {
	r := New().Repo("org/tiny")
	id := r.Commit("main", map[string][]byte{"a/b/c.txt": []byte("hello"), "a.txt": []byte("x"), "a-b/z": []byte("y"), "a/empty": {},
		"m.safetensors": []byte("weights")})
	if id != "ec5f54a28e024fbaef7de9828788a8c8c874fd3d" {
		t.Errorf("commit %s", id)
	}
	want := map[string]string{"": "f8c27a7644a404d697f938cac745d5cebd510b52", "a-b": "2dd821e08cc77fb93ebccea4dd6300846e324592",
		"a": "297d9619aa6059f4b106c6bd1f1be8daed5e304a", "a/b": "0004d4b9b2f0d667f93d3c99d72d264430db680e"}
	if diff := cmp.Diff(want, r.at("main").trees); diff != "" {
		t.Error(diff)
	}
}

// ask sends a request with a body and gives the answer's status and JSON.
func ask(t *testing.T, method, url, token, body string) (int, http.Header, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // without following redirects
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	_ = json.Unmarshal(b, &v)
	return resp.StatusCode, resp.Header, v
}

// ndjson is the body of a commit.
func ndjson(parent string, ops ...string) string {
	b := fmt.Sprintf(`{"key":"header","value":{"summary":"s","description":"","parentCommit":%q}}`+"\n", parent)
	return b + strings.Join(ops, "\n") + "\n"
}

func putFile(path, content string) string {
	return fmt.Sprintf(`{"key":"file","value":{"path":%q,"encoding":"base64","content":%q}}`, path, base64.StdEncoding.EncodeToString([]byte(content)))
}

// TestCommit makes commits, and refuses those that are not right as a whole.
func TestCommit(t *testing.T) {
	h := New()
	r := h.Repo("org/tiny")
	h.AddToken("hf_reader", User{Name: "reader", Role: Reader})
	big := memory([]byte("weights"))
	first := r.Commit("main", map[string][]byte{"a.txt": []byte("a"), "d/b.txt": []byte("b"), "d/c.txt": []byte("c"), "m.safetensors": []byte("weights")})
	s := h.Start(t)
	url := s.URL + "/api/models/org/tiny/commit/main"
	lfs := func(path, oid string, size int) string {
		return fmt.Sprintf(`{"key":"lfsFile","value":{"path":%q,"algo":"sha256","oid":%q,"size":%d}}`, path, oid, size)
	}
	for _, tc := range []struct {
		name, body, token string
		status            int
	}{
		{"no token", ndjson("", putFile("x", "x")), "", 401},
		{"reader", ndjson("", putFile("x", "x")), "hf_reader", 403},
		{"empty", "", Token, 400},
		{"no header", putFile("x", "x"), Token, 400},
		{"two headers", ndjson("") + ndjson(""), Token, 400},
		{"wrong parent", ndjson(strings.Repeat("0", 40), putFile("x", "x")), Token, 412},
		{"name", ndjson("", putFile("../x", "x")), Token, 400},
		{"absolute name", ndjson("", putFile("/x", "x")), Token, 400},
		{"name in .git", ndjson("", putFile(".git/config", "x")), Token, 400},
		{"file as folder", ndjson("", putFile("a.txt/x", "x")), Token, 400},
		{"folder as file", ndjson("", putFile("d", "x")), Token, 400},
		{"not uploaded", ndjson("", lfs("n.safetensors", strings.Repeat("0", 64), 7)), Token, 400},
		{"another size", ndjson("", lfs("n.safetensors", big.sha256, 8)), Token, 400},
		{"no digest", ndjson("", lfs("n.safetensors", "../../x", 7)), Token, 400},
		{"second fails", ndjson("", putFile("x", "x"), `{"key":"deletedFile","value":{"path":"none"}}`), Token, 404},
		{"no folder", ndjson("", `{"key":"deletedFolder","value":{"path":"none/"}}`), Token, 404},
		{"no source", ndjson("", `{"key":"copyFile","value":{"path":"x","srcPath":"none"}}`), Token, 404},
		{"unknown operation", ndjson("", `{"key":"chmod","value":{"path":"a.txt"}}`), Token, 400},
		{"base64", ndjson("", `{"key":"file","value":{"path":"x","encoding":"base64","content":"%"}}`), Token, 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if status, _, _ := ask(t, "POST", url, tc.token, tc.body); status != tc.status {
				t.Errorf("status %d, want %d", status, tc.status)
			}
			if r.Head("main") != first {
				t.Error("something was committed")
			}
		})
	}
	if status, head, _ := ask(t, "POST", s.URL+"/api/models/org/tiny/commit/none", Token, ndjson("", putFile("x", "x"))); status != 404 || head.Get("X-Error-Code") != "RevisionNotFound" {
		t.Errorf("no branch: %d %v", status, head)
	}

	status, _, v := ask(t, "POST", url, Token, ndjson(first, putFile("x", "x"), `{"key":"deletedFolder","value":{"path":"d/"}}`, putFile("d/c.txt", "new"),
		lfs("n.safetensors", big.sha256, 7), `{"key":"copyFile","value":{"path":"copy.txt","srcPath":"d/b.txt","srcRevision":"`+first+`"}}`))
	if status != 200 || v["commitOid"] != r.Head("main") || len(r.History("main")) != 2 {
		t.Fatalf("%d %v", status, v)
	}
	want := map[string][]byte{"a.txt": []byte("a"), "copy.txt": []byte("b"), "d/c.txt": []byte("new"), "m.safetensors": []byte("weights"), "n.safetensors": []byte("weights"), "x": []byte("x")}
	if diff := cmp.Diff(want, r.Files("main")); diff != "" {
		t.Error(diff)
	}
	if got := slices.Sorted(maps.Keys(r.Files(first))); len(got) != 4 {
		t.Errorf("the first commit has become %v", got)
	}
}

// TestUpload refuses objects that are not what they were announced as.
func TestUpload(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		h := New(Options{PartSize: 10, Dir: dir})
		h.Repo("org/tiny").Commit("main", map[string][]byte{"a.txt": []byte("a")})
		s := h.Start(t)
		type action struct {
			Href   string
			Header map[string]string
		}
		batch := func(b []byte, transfers string) map[string]action {
			t.Helper()
			o := memory(b)
			body := fmt.Sprintf(`{"operation":"upload","transfers":[%s],"objects":[{"oid":%q,"size":%d}]}`, transfers, o.sha256, o.size)
			req, _ := http.NewRequest("POST", s.URL+"/org/tiny.git/info/lfs/objects/batch", strings.NewReader(body))
			req.Header.Set("Authorization", "Bearer "+Token)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var v struct {
				Objects []struct{ Actions map[string]action }
			}
			if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || len(v.Objects) != 1 {
				t.Fatal(err)
			}
			return v.Objects[0].Actions
		}
		put := func(url, body string) (int, string) {
			t.Helper()
			status, head, _ := ask(t, "PUT", url, "", body)
			return status, head.Get("ETag")
		}

		small := batch([]byte("0123456789ab"), `"basic"`)
		if status, _ := put(small["upload"].Href, "0123456789aX"); status != 400 {
			t.Errorf("wrong bytes: %d", status)
		}
		if status, _ := put(small["upload"].Href, "0123456789a"); status != 400 {
			t.Errorf("too few bytes: %d", status)
		}
		if status, _ := put(small["upload"].Href+"0", "0123456789ab"); status != 403 {
			t.Errorf("wrong signature: %d", status)
		}
		o := memory([]byte("0123456789ab"))
		verify := fmt.Sprintf(`{"oid":%q,"size":12}`, o.sha256)
		if status, _, _ := ask(t, "POST", small["verify"].Href, Token, verify); status != 404 {
			t.Errorf("verified before the upload: %d", status)
		}
		if status, _ := put(small["upload"].Href, "0123456789ab"); status != 200 {
			t.Errorf("the object: %d", status)
		}
		if status, _, _ := ask(t, "POST", small["verify"].Href, Token, verify); status != 200 {
			t.Errorf("not verified after the upload: %d", status)
		}
		if a := batch([]byte("0123456789ab"), `"basic"`); a != nil {
			t.Errorf("an object that is there has actions %v", a)
		}

		b := content(25)
		parts := batch(b, `"basic","multipart"`)["upload"]
		if parts.Header["chunk_size"] != "10" || len(parts.Header) != 4 {
			t.Fatalf("%v", parts)
		}
		complete := func(etags ...string) int {
			t.Helper()
			var list []map[string]any
			for i, e := range etags {
				list = append(list, map[string]any{"partNumber": i + 1, "etag": e})
			}
			body, _ := json.Marshal(map[string]any{"oid": memory(b).sha256, "parts": list})
			status, _, _ := ask(t, "POST", parts.Href, "", string(body))
			return status
		}
		var etags []string
		for i := range 3 {
			status, etag := put(parts.Header[fmt.Sprintf("%05d", i+1)], string(b[10*i:min(25, 10*i+10)]))
			if status != 200 || etag == "" {
				t.Fatalf("part %d: %d", i+1, status)
			}
			etags = append(etags, etag)
		}
		if status, _ := put(parts.Header["00003"], "0123456789"); status != 400 {
			t.Errorf("a part of another size: %d", status)
		}
		for name, list := range map[string][]string{"too few": etags[:2], "wrong order": {etags[1], etags[0], etags[2]}, "none": nil} {
			if status := complete(list...); status != 400 {
				t.Errorf("%s: %d", name, status)
			}
		}
		_, wrong := put(parts.Header["00001"], "XXXXXXXXXX")
		if status := complete(wrong, etags[1], etags[2]); status != 400 {
			t.Errorf("wrong bytes in a part: %d", status)
		}
		put(parts.Header["00001"], string(b[:10]))
		if status := complete(etags...); status != 200 {
			t.Errorf("complete: %d", status)
		}
		if status := complete(etags...); status != 200 {
			t.Errorf("complete again: %d", status)
		}
		if got, err := h.object(memory(b).sha256).bytes(); err != nil || !bytes.Equal(got, b) || h.Stats().LFSUploads != 2 {
			t.Errorf("%q %v, %d uploads", got, err, h.Stats().LFSUploads)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "object-*")); dir != "" && len(left) != 2 {
			t.Errorf("%d objects on the disk", len(left))
		}
	}
}

// TestAnswers looks at heads that clients go by.
func TestAnswers(t *testing.T) {
	h := New(Options{SignedFor: time.Nanosecond})
	r := h.Repo("org/tiny")
	id := r.Commit("main", map[string][]byte{"config.json": []byte("{}"), "m.safetensors": []byte("weights")})
	h.Repo("org/gated").SetGated("auto").Commit("main", map[string][]byte{"config.json": []byte("{}")})
	s := h.Start(t)

	status, head, _ := ask(t, "HEAD", s.URL+"/org/tiny/resolve/main/config.json", "", "")
	want := `"` + gitID("blob", []byte("{}")) + `"`
	if status != 307 || !strings.HasPrefix(head.Get("Location"), "/api/resolve-cache/models/org/tiny/"+id+"/config.json?") || head.Get("X-Linked-Etag") != want || head.Get("X-Repo-Commit") != id {
		t.Errorf("small: %d %v", status, head)
	}
	status, head, _ = ask(t, "GET", s.URL+head.Get("Location"), "", "")
	if status != 200 || head.Get("ETag") != want || head.Get("Content-Length") != "2" {
		t.Errorf("small: %d %v", status, head)
	}
	status, head, _ = ask(t, "HEAD", s.URL+"/org/tiny/resolve/main/m.safetensors", "", "")
	if status != 302 || !strings.HasPrefix(head.Get("Location"), s.StorageURL) || head.Get("X-Linked-Size") != "7" || head.Get("X-Linked-Etag") != `"`+memory([]byte("weights")).sha256+`"` {
		t.Errorf("large: %d %v", status, head)
	}
	if status, _, _ = ask(t, "GET", head.Get("Location"), "", ""); status != 403 {
		t.Errorf("an address that has expired: %d", status)
	}

	status, head, _ = ask(t, "GET", s.URL+"/api/models/org/tiny/revision/main?blobs=true", "", "")
	req, _ := http.NewRequest("GET", s.URL+"/api/models/org/tiny/revision/main?blobs=true", nil)
	req.Header.Set("If-None-Match", head.Get("ETag"))
	for _, want := range []int{304, 200} {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if status != 200 || resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
		r.Commit("main", map[string][]byte{"new": nil, "config.json": []byte("{} ")})
	}

	for path, want := range map[string]string{
		"/org/none/resolve/main/x":              "401 RepoNotFound",
		"/org/tiny/resolve/none/x":              "404 RevisionNotFound",
		"/org/tiny/resolve/main/x":              "404 EntryNotFound",
		"/org/gated/resolve/main/config.json":   "401 GatedRepo",
		"/api/models/org/none":                  "401 RepoNotFound",
		"/api/models/org/tiny/tree/main/none":   "404 EntryNotFound",
		"/api/models/org/tiny/revision/a%2Fb":   "404 RevisionNotFound",
		"/api/models/org/tiny/xet-write-token/": "404 ",
	} {
		if status, head, _ := ask(t, "GET", s.URL+path, "", ""); fmt.Sprint(status, " ", head.Get("X-Error-Code")) != want || head.Get("X-Error-Message") == "" {
			t.Errorf("%s: %d %v", path, status, head)
		}
	}
	if status, _, _ := ask(t, "GET", s.URL+"/api/models/org/none", Token, ""); status != 404 {
		t.Errorf("with a token: %d", status)
	}
	if status, head, _ := ask(t, "GET", s.URL+"/api/models/org/tiny", "hf_wrong", ""); status != 401 || head.Get("X-Error-Message") != "Invalid credentials in Authorization header" {
		t.Errorf("a wrong token: %d %v", status, head)
	}
}

// TestCommitDisk serves a file that nobody has read, under the digest given.
func TestCommitDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.safetensors"), content(5<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	given := strings.Repeat("ab", 32)
	sums, err := ReadSums(strings.NewReader(given + "  ./m.safetensors\n"))
	if err != nil {
		t.Fatal(err)
	}
	h := New()
	if _, err := h.Repo("org/tiny").CommitDir("main", dir, sums); err != nil {
		t.Fatal(err)
	}
	s := h.Start(t)
	_, head, _ := ask(t, "HEAD", s.URL+"/org/tiny/resolve/main/m.safetensors", "", "")
	if head.Get("X-Linked-Etag") != strconv.Quote(given) {
		t.Errorf("%v", head)
	}
	if _, b, err := get(t, s.URL+"/org/tiny/resolve/main/m.safetensors", "bytes=4194300-"); err != nil || !bytes.Equal(b, content(5 << 20)[4194300:]) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for _, bad := range []string{"x", given, given + " ", given + "x  a", "\n"} {
		if _, err := ReadSums(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// FuzzCommit gives no operation that could leave the repository, and no results with an error.
func FuzzCommit(f *testing.F) {
	f.Add([]byte(ndjson("", putFile("a", "b"), `{"key":"deletedFile","value":{"path":"x/y"}}`)))
	f.Add([]byte(ndjson("0123", `{"key":"lfsFile","value":{"path":"m","algo":"sha256","oid":"`+strings.Repeat("0f", 32)+`","size":3}}`)))
	f.Add([]byte(ndjson("", `{"key":"copyFile","value":{"path":"m","srcPath":"n"}}`, `{"key":"deletedFolder","value":{"path":"x/"}}`)))
	f.Add([]byte(`{"key":"header","value":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		head, ops, err := parseCommit(bytes.NewReader(b))
		if err != nil {
			if head != nil || ops != nil {
				t.Fatal("results with an error")
			}
			return
		}
		r := New().Repo("org/fuzz")
		for _, op := range ops {
			if err := checkPath(op.path); err != nil {
				t.Fatal(err)
			}
		}
		made, _, err := r.commitAll("main", "fuzz", head, ops, false)
		if err == nil && r.Head("main") != made.id || err != nil && r.Head("main") != "" {
			t.Fatalf("%v, head %q", err, r.Head("main"))
		}
	})
}

// FuzzRequests sends bodies to all that takes one: none may panic, and the repository keeps its state on an error.
func FuzzRequests(f *testing.F) {
	paths := []string{
		"POST /api/repos/create", "DELETE /api/repos/delete", "POST /api/models/org/tiny/preupload/main", "POST /api/models/org/tiny/commit/main",
		"POST /api/models/org/tiny/branch/b", "POST /api/models/org/tiny/tag/main", "PUT /api/models/org/tiny/settings",
		"POST /api/models/org/tiny/paths-info/main", "POST /org/tiny.git/info/lfs/objects/batch", "POST /org/tiny.git/info/lfs/objects/verify",
		"POST /api/v1/login", "POST /api/v1/models", "POST /api/v1/models/org/tiny/repo/tag", "POST /api/v1/repos/models/org/tiny/info/lfs/objects/batch",
		"POST /api/v1/repos/models/org/tiny/commit/master", "POST /_faults",
	}
	for i := range paths {
		for _, body := range []string{"", "{}", "null", "[]", `{"name":"x","Path":"org","Name":"x","tag":"t","TagName":"t","Ref":"main","gated":"auto"}`,
			`{"files":[{"path":"a","size":1}],"objects":[{"oid":"` + strings.Repeat("a", 64) + `","size":100000000}],"operation":"upload","transfers":["basic","multipart"]}`,
			`{"commit_message":"m","actions":[{"action":"create","path":"a","type":"normal","size":1,"content":"eA==","encoding":"base64"}]}`,
			`{"fault":"cut","path":"nothing"}`} {
			f.Add(uint8(i), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		h := New()
		h.SetURLs("http://hub", "http://storage")
		r := h.Repo("org/tiny")
		first := r.Commit("main", map[string][]byte{"a.txt": []byte("a")})
		method, path, _ := strings.Cut(paths[int(which)%len(paths)], " ")
		req := httptest.NewRequest(method, path, bytes.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+Token)
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Fatalf("%s %s: %d", method, path, w.Code)
		}
		if w.Code >= 400 && h.find("models/org/tiny").Head("main") != first {
			t.Fatalf("%s %s: %d, and the repository has changed", method, path, w.Code)
		}
	})
}
