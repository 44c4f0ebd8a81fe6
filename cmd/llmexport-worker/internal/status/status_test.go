package status

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/channel"
)

// sample is a release in the middle, with names and errors that would break a terminal or a page.
func sample() *Status {
	began := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	s := &Status{Server: "Running", Taken: began.Add(90 * time.Minute)}
	s.Release, s.Code, s.Store, s.Began, s.Phase = "phones", "release-1", "s3://bucket/x", began, flow.Running
	s.Repositories = []flow.RepositoryState{
		{ID: "org/a", Phase: flow.Complete, Commit: "c0ffee", Packages: []flow.PackageState{
			{Name: "a-int4", Phase: flow.Complete, Digest: digest.Of([]byte("a")), Places: []string{"oci://registry/a:int4"}},
		}},
		{ID: "org/b", Phase: flow.Running, Packages: []flow.PackageState{
			{Name: "b-int4", Phase: flow.Running, Stage: "quantize"},
			{Name: "b-int8", Phase: flow.Failed, Stage: "verify", Error: "verify: \x1b[31mkl <script>alert(1)</script> failed\nmore", Kind: flow.Verdict},
		}},
		{ID: "org/c", Phase: flow.Waiting, Packages: []flow.PackageState{{Name: "c-int4", Phase: flow.Waiting}}},
	}
	moves := []publish.Move{{Place: "oci://registry/a", Channel: "stable", Status: channel.Moved}}
	s.Parts = []flow.PartState{{Part: "small", Phase: flow.Complete, Channels: moves}, {Phase: flow.Waiting}}
	s.Tasks = []Task{
		{Repository: "org/b", Package: "b-int4", Stage: "quantize", Attempt: 2, Worker: "host/1", Running: true,
			Progress: &pipeline.State{Stage: "quantize", What: "calibrated weights", Fraction: .42, Left: 3700}},
		{Repository: "org/b", Package: "b-int8", Stage: "publish", Attempt: 3, Error: "the registry is away\nfor long"},
		{Repository: "org/b", Package: "b-int2", Stage: "verify", Attempt: 1},
	}
	s.Lanes = []Lane{{Queue: "compute@0123", Workers: 2, Backlog: 7}, {Queue: "verify@0123"}}
	return s
}

func TestText(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := sample().Write(&b, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1 complete, 1 running, 1 waiting, 1 failed", "1h 30m ago", "42%", "1h 1m", "quantize calibrated weights",
		"waits for another attempt after: the registry is away",
		"waits for a worker", "oci://registry/a@stable moved", "queue verify@0123 has no worker", string(digest.Of([]byte("a"))), "oci://registry/a:int4",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
	for _, no := range []string{"\x1b", "for long", "compute@0123 has no worker"} {
		if strings.Contains(b.String(), no) {
			t.Errorf("has %q", no)
		}
	}
}

// The page is well formed, needs nothing else, and shows foreign text as text.
func TestPage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	s := sample()
	s.Ended, s.Phase = s.Taken, flow.Failed
	if err := s.WritePage(&b); err != nil {
		t.Fatal(err)
	}
	doc, err := html.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Builder{}
	for n := range doc.Descendants() {
		switch n.Data {
		case "script", "link", "img", "iframe":
			if n.Type == html.ElementNode {
				t.Errorf("the page has a %s", n.Data)
			}
		}
		for _, a := range n.Attr {
			if a.Key == "src" || a.Key == "href" || strings.HasPrefix(a.Key, "on") {
				t.Errorf("the page has %s=%q", a.Key, a.Val)
			}
			if a.Key == "style" && strings.Contains(a.Val, "ZgotmplZ") {
				t.Errorf("style %q", a.Val)
			}
		}
		if n.Type == html.TextNode && n.Parent.Data != "style" {
			text.WriteString(n.Data + " ")
		}
	}
	for _, want := range []string{"Release phones: failed", "<script>alert(1)</script>", "took 1h 30m", "42%", "oci://registry/a@stable moved", "c-int4"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("lacks %q:\n%s", want, text.String())
		}
	}
	if !strings.Contains(b.String(), `style="width: 25.00%"`) {
		t.Error("the bar has no widths")
	}
}

func TestLasted(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-1: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m 1s", 47*time.Hour + 59*time.Minute: "47h 59m", 50 * time.Hour: "2d 2h",
	} {
		if got := lasted(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
