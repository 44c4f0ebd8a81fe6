package fakehub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestControl sets faults and reads counters as scripts do.
func TestControl(t *testing.T) {
	_, s, _ := tinyHub(t, Options{})
	post := func(body string) int {
		t.Helper()
		resp, err := http.Post(s.URL+"/_faults", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for body, want := range map[string]int{
		`{"fault":"status","status":503,"path":"*config.json","times":1}`: 200,
		`[{"fault":"nonsense"}]`:         400,
		`{"fault":"slow"}`:               400,
		`{"fault":"cut","after":-1}`:     400,
		`[{"fault":"status"},`:           400,
		`{"fault":"redirect"}`:           400,
		`{"fault":"status","status":42}`: 400,
	} {
		if got := post(body); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
	for _, want := range []int{503, 200} {
		if resp, _, err := get(t, s.URL+"/org/tiny/resolve/main/config.json", ""); err != nil || resp.StatusCode != want {
			t.Errorf("%v %v, want %d", resp, err, want)
		}
	}
	_, b, err := get(t, s.URL+"/_stats", "")
	var st Stats
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	if err != nil || st.Files["org/tiny/config.json"] != (Total{Requests: 1, Sent: 2}) || len(st.Requests) != 3 || st.Requests[0].Fault != Status {
		t.Errorf("%+v %v", st, err)
	}
}

func TestGlob(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "a/b", true}, {"a*c", "abbc", true}, {"a*c", "ab", false}, {"*b*", "abc", true},
		{"ab*ba", "aba", false}, {"*a*a", "a", false}, {"a*b*c", "axbxc", true}, {"a*b*c", "acxb", false},
	} {
		if got := glob(tc.pattern, tc.s); got != tc.want {
			t.Errorf("%q %q: %v", tc.pattern, tc.s, got)
		}
	}
}

// TestCounters counts what was sent of a file, by sendfile too.
func TestCounters(t *testing.T) {
	h, s, want := tinyHub(t, Options{})
	for _, ranges := range []string{"", "bytes=0-99", "bytes=" + strconv.Itoa(len(want)-1) + "-"} {
		if _, _, err := get(t, s.URL+"/org/tiny/resolve/main/model.safetensors", ranges); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.Sent(weights); got != int64(len(want)+101) {
		t.Errorf("sent %d", got)
	}
	if n := len(h.Requests(http.MethodGet, weights)); n != 6 {
		t.Errorf("%d requests, want 3 to the hub and 3 to storage", n)
	}
	req, _ := http.NewRequest(http.MethodGet, s.StorageURL+"/objects/x", nil)
	req.Header.Set("Authorization", "Bearer "+Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !h.Leaked() || resp.StatusCode != 400 {
		t.Errorf("a token at storage: leaked %v, status %d", h.Leaked(), resp.StatusCode)
	}
}

// TestSkip lets requests through before and after those that go wrong.
func TestSkip(t *testing.T) {
	h, s, _ := tinyHub(t, Options{})
	h.Fault(Rule{Fault: Status, Status: 500, Path: "/api/models/*", Method: "GET", Skip: 1, Times: 2})
	var got []int
	for range 5 {
		resp, _, err := get(t, s.URL+"/api/models/org/tiny", "")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, resp.StatusCode)
	}
	if fmt.Sprint(got) != "[200 500 500 200 200]" || fmt.Sprint(h.Met()) != "[2]" {
		t.Errorf("%v, met %v", got, h.Met())
	}
}

// TestLies lists what is not so.
func TestLies(t *testing.T) {
	type entry struct {
		Path string
		Size int64
		LFS  *struct{ OID string }
	}
	list := func(t *testing.T, s *Server) map[string]entry {
		t.Helper()
		_, b, err := get(t, s.URL+"/api/models/org/tiny/tree/main?recursive=true", "")
		var entries []entry
		if err == nil {
			err = json.Unmarshal(b, &entries)
		}
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]entry{}
		for _, e := range entries {
			m[e.Path] = e
		}
		return m
	}
	h, s, b := tinyHub(t, Options{})
	h.Fault(Rule{Fault: ListNames}, Rule{Fault: ListDigest, Files: "*.safetensors"})
	names := list(t, s)
	for _, n := range HostileNames {
		if _, ok := names[n]; !ok {
			t.Errorf("%q is not listed", n)
		}
	}
	h.ClearFaults()
	h.Fault(Rule{Fault: ListDigest, Files: "*.safetensors", Times: 1}, Rule{Fault: ListSize, Bytes: -5, Times: 1})
	if e := list(t, s)["model.safetensors"]; e.LFS.OID == memory(b).sha256 || len(e.LFS.OID) != 64 {
		t.Errorf("%+v", e)
	}
	if e := list(t, s)["model.safetensors"]; e.Size != int64(len(b)-5) {
		t.Errorf("%+v", e)
	}
	if e := list(t, s)["model.safetensors"]; e.Size != int64(len(b)) || e.LFS.OID != memory(b).sha256 {
		t.Errorf("%+v", e)
	}
}
