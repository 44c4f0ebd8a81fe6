package hubs

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var fuzzHome = &url.URL{Scheme: "https", Host: "hub.example"}

// signed finds what a signed address has and a message does not show.
var signed = regexp.MustCompile(`\?[^\s"'<>]*=`)

const fuzzOID = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// FuzzHubAnswers reads answers of hubs. What is accepted has sizes and digests that can be, and covers each byte once.
func FuzzHubAnswers(f *testing.F) {
	seeds := []string{
		`[{"type":"file","path":"a","size":3,"oid":"` + strings.Repeat("a", 40) + `"},{"type":"directory","path":"d"}]`,
		`[{"type":"file","path":"a","size":3,"oid":"` + strings.Repeat("a", 40) + `","lfs":{"oid":"` + fuzzOID + `","size":9}}]`,
		`{"sha":"` + strings.Repeat("b", 40) + `","private":true,"gated":"auto"}`,
		`{"files":[{"path":"a","uploadMode":"lfs","shouldIgnore":false}]}`,
		`{"objects":[{"oid":"` + fuzzOID + `","size":10}]}`,
		`{"objects":[{"oid":"` + fuzzOID + `","actions":{"upload":{"href":"https://s.example/x?sig=1","header":{"X-A":"b"}},"verify":{"href":"https://hub.example/v"}}}]}`,
		`{"objects":[{"oid":"` + fuzzOID + `","actions":{"upload":{"href":"https://s.example/x","header":{"chunk_size":"4","1":"https://s.example/1","00002":"https://s.example/2","3":"https://s.example/3"}}}}]}`,
		`{"objects":[{"oid":"` + fuzzOID + `","error":{"code":413,"message":"too large https://s.example/?sig=1"}}]}`,
		`{"objects":[{"oid":"` + fuzzOID + `","error":{"code":413,"message":"too large: s.example/x?sig=1"}}]}`,
		`{"Code":200,"Success":true,"Data":{"Files":[{"Path":"a","Type":"blob","Size":1,"Sha256":"` + fuzzOID + `","Revision":"` + strings.Repeat("c", 40) + `"}]}}`,
		`{"Code":10010101001,"Success":false,"Message":"x"}`,
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		files := map[string]repoFile{}
		if parseTree(b, files) == nil {
			for name, h := range files {
				if name == "" || h.size < 0 || (h.git == "") == (h.sha256 == "") {
					t.Fatalf("%q: %+v", name, h)
				}
			}
		}
		if i, err := parseInfo(b); err == nil && !gitID.MatchString(i.commit) {
			t.Fatalf("commit %q", i.commit)
		}
		if lfs, err := parsePreupload(b, []string{"a"}); err == nil && len(lfs) != 1 {
			t.Fatalf("%v", lfs)
		}
		const size = 10
		if uploads, err := parseBatch(b, map[string]int64{fuzzOID: size}, fuzzHome); err == nil {
			u, ok := uploads[fuzzOID]
			if !ok || len(uploads) != 1 {
				t.Fatalf("%v", uploads)
			}
			if u != nil && (u.to.Scheme != "https" || u.chunk > 0 && (int64(len(u.parts)) != (size-1)/u.chunk+1)) {
				t.Fatalf("%+v", u)
			}
		} else if strings.Contains(err.Error(), "rejects a large file") && signed.MatchString(err.Error()) {
			t.Fatalf("a signed address in %v", err)
		}
		if data, err := parseModelScope(200, b); err == nil {
			if l, err := parseModelScopeFiles(data); err == nil {
				for name, h := range l.files {
					if name == "" || h.size < 0 || !digest.IsHex(h.sha256) {
						t.Fatalf("%q: %+v", name, h)
					}
				}
			}
		}
	})
}

// An answer that is nested without end is refused before it is read, whatever was asked.
func TestDeepAnswers(t *testing.T) {
	deep := []byte(`{"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`)
	for name, parse := range map[string]func([]byte) error{
		"info":       func(b []byte) error { _, err := parseInfo(b); return err },
		"tree":       func(b []byte) error { return parseTree(b, map[string]repoFile{}) },
		"preupload":  func(b []byte) error { _, err := parsePreupload(b, nil); return err },
		"batch":      func(b []byte) error { _, err := parseBatch(b, nil, fuzzHome); return err },
		"ModelScope": func(b []byte) error { _, err := parseModelScope(200, b); return err },
		"its files":  func(b []byte) error { _, err := parseModelScopeFiles(b); return err },
	} {
		if err := parse(deep); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "nested deeper") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseTree(t *testing.T) {
	for name, tc := range map[string]struct{ page, err string }{
		"twice": {`[{"type":"file","path":"a","oid":"` + strings.Repeat("a", 40) + `"},{"type":"file","path":"a","oid":"` +
			strings.Repeat("a", 40) + `"}]`, "twice"},
		"negative": {`[{"type":"file","path":"a","size":-1,"oid":"` + strings.Repeat("a", 40) + `"}]`, "an invalid size or digest"},
		"digest":   {`[{"type":"file","path":"a","size":1,"oid":"x"}]`, "an invalid size or digest"},
		"no list":  {`{}`, "the hub's response"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := parseTree([]byte(tc.page), map[string]repoFile{}); err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
		})
	}
}

func TestParseBatch(t *testing.T) {
	upload := func(header string) string {
		return `{"objects":[{"oid":"` + fuzzOID + `","actions":{"upload":{"href":"https://s.example/x","header":` + header + `}}}]}`
	}
	for name, tc := range map[string]struct{ answer, err string }{
		"none":    {`{"objects":[]}`, "responded for 0 of 1"},
		"another": {`{"objects":[{"oid":"abc"}]}`, "was not requested"},
		"refused": {`{"objects":[{"oid":"` + fuzzOID + `","error":{"code":413,"message":"too\nlarge, see https://x?sig=1"}}]}`,
			"413 too large, see https://x/..."},
		"http":               {`{"objects":[{"oid":"` + fuzzOID + `","actions":{"upload":{"href":"http://s.example/x"}}}]}`, "no usable address"},
		"part lacks":         {upload(`{"chunk_size":"4","1":"https://s/1","3":"https://s/3"}`), "part 2 of 3"},
		"part too many":      {upload(`{"chunk_size":"5","1":"https://s/1","2":"https://s/2","3":"https://s/3"}`), "part 3 of 2"},
		"parts of nothing":   {upload(`{"chunk_size":"0"}`), "in parts of 0"},
		"parts of no number": {upload(`{"chunk_size":"x"}`), "in parts of x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseBatch([]byte(tc.answer), map[string]int64{fuzzOID: 10}, fuzzHome)
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
		})
	}
	if _, err := parseBatch([]byte(upload(`{"chunk_size":"1"}`)), map[string]int64{fuzzOID: maxParts + 1}, fuzzHome); err == nil {
		t.Error("too many parts are accepted")
	}
}

func TestNextPage(t *testing.T) {
	here := &url.URL{Scheme: "https", Host: "hub.example", Path: "/api"}
	for link, want := range map[string]string{
		"":                                  "<nil>",
		`<https://hub.example/b>; rel="x"`:  "<nil>",
		`</b?c=1>; rel="next"`:              "https://hub.example/b?c=1",
		`<https://evil.example>;rel="next"`: "error",
	} {
		u, err := nextPage(link, here)
		got := fmt.Sprint(u)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", link, got, want)
		}
	}
}
