package fakehub

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
	if status, head, _ := ask(t, "POST", s.URL+"/api/models/org/tiny/commit/none", Token, ndjson("", putFile("x", "x"))); status != 404 ||
		head.Get("X-Error-Code") != "RevisionNotFound" {
		t.Errorf("no branch: %d %v", status, head)
	}

	status, _, v := ask(t, "POST", url, Token, ndjson(first, putFile("x", "x"), `{"key":"deletedFolder","value":{"path":"d/"}}`, putFile("d/c.txt", "new"),
		lfs("n.safetensors", big.sha256, 7), `{"key":"copyFile","value":{"path":"copy.txt","srcPath":"d/b.txt","srcRevision":"`+first+`"}}`))
	if status != 200 || v["commitOid"] != r.Head("main") || len(r.History("main")) != 2 {
		t.Fatalf("%d %v", status, v)
	}
	want := map[string][]byte{"a.txt": []byte("a"), "copy.txt": []byte("b"), "d/c.txt": []byte("new"), "m.safetensors": []byte("weights"),
		"n.safetensors": []byte("weights"), "x": []byte("x")}
	if diff := cmp.Diff(want, r.Files("main")); diff != "" {
		t.Error(diff)
	}
	if got := slices.Sorted(maps.Keys(r.Files(first))); len(got) != 4 {
		t.Errorf("the first commit has become %v", got)
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
