package fakehub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

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

		_, _, v := ask(t, "POST", s.URL+"/org/tiny.git/info/lfs/objects/batch", Token,
			fmt.Sprintf(`{"operation":"upload","transfers":["basic","multipart"],"objects":[{"oid":%q,"size":%d}]}`, o.sha256, int64(1)<<62))
		if e, ok := v["objects"].([]any)[0].(map[string]any)["error"]; !ok {
			t.Errorf("an object of 4 EiB gives %v", e)
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
			`{"files":[{"path":"a","size":1}],"objects":[{"oid":"` + strings.Repeat("a", 64) +
				`","size":100000000}],"operation":"upload","transfers":["basic","multipart"]}`,
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
