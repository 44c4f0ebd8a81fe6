package s3

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/minio/minio-go/v7"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fakes3"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func placeAt(s *placetest.S3, prefix string) Place {
	return Place{Ref: "s3://" + fakes3.Bucket + "/" + prefix, Endpoint: s.URL, Region: "us-east-1", Transfer: placetest.Quick, Part: placetest.S3Part}
}

// wantAt demands that a reference gives exactly p.
func wantAt(t testing.TB, ref string, p place.Package) {
	t.Helper()
	o, err := Open(t.Context(), strings.TrimPrefix(ref, "s3://"), place.OpenOptions{Transfer: placetest.Quick})
	if err != nil {
		t.Error(err)
		return
	}
	placetest.WantOrigin(t, o, p)
}

func TestS3(t *testing.T) {
	s := placetest.NewS3(t)
	testS3(t, func(prefix string) Place { return placeAt(s, prefix) })
	if n, _ := s.Pending(); n > 0 {
		t.Errorf("%d uploads were left behind", n)
	}
	if i := slices.IndexFunc(s.Keys(), func(k string) bool { return strings.HasSuffix(k, marker) }); i >= 0 && !strings.HasPrefix(s.Keys()[i], "taken/") {
		t.Errorf("%s was left behind", s.Keys()[i])
	}
	t.Run("objects", func(t *testing.T) {
		s := placetest.NewS3(t)
		if _, err := place.To(t.Context(), placeAt(s, "a"), placetest.Package(t, "one")); err != nil {
			t.Fatal(err)
		}
		got := ""
		objects := s.Objects()
		for _, k := range slices.Sorted(maps.Keys(objects)) {
			got += fmt.Sprintf("%s\n", k)
			for _, h := range slices.Sorted(maps.Keys(objects[k].Meta)) {
				got += fmt.Sprintf("  %s: %s\n", h, objects[k].Meta.Get(h))
			}
		}
		path := filepath.Join("testdata", "s3", "objects.txt")
		if *update {
			placetest.Write(t, path, got)
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("without conditions", func(t *testing.T) {
		s := placetest.NewS3(t)
		s.Plain = true
		p := placetest.Package(t, "one")
		if _, err := place.To(t.Context(), placeAt(s, "a"), p); err != nil {
			t.Error(err)
		}
		wantAt(t, placeAt(s, "a").ref(t), p)
	})
	t.Run("manifest overtaken", func(t *testing.T) {
		s := placetest.NewS3(t)
		one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
		staged, err := placeAt(s, "a").Stage(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		s.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, manifest.FileName) {
				once.Do(func() { // somebody who does not look at the marker
					text, _ := two.Manifest.Marshal()
					s.Put("a/"+manifest.FileName, fakes3.NewObject(text, nil))
				})
			}
			return false
		})
		if _, err := staged.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), "412") {
			t.Errorf("got %v", err)
		}
	})
}

// ref is what pull takes.
func (s Place) ref(t testing.TB) string {
	b, err := openBucket(s)
	if err != nil {
		t.Fatal(err)
	}
	return b.ref()
}

// testS3 is what holds for the fake store and for real ones.
func testS3(t *testing.T, store func(prefix string) Place) {
	part := int(store("").Part)
	one, big := placetest.Package(t, "one"), placetest.Big(t, part+part/3)
	names := []string{"config.json", "llm.mnn", "llm.mnn.weight", "manifest.json", "sub/empty.bin"}
	a := store("models/a")
	d, err := a.Diff(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	if d.Status != place.Published || !slices.Equal(d.Add, names) || d.Upload <= one.Manifest.Bytes() {
		t.Errorf("%+v", d)
	}
	r, err := place.To(t.Context(), a, one)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != place.Published || r.Files != 5 || r.Uploaded != d.Upload {
		t.Errorf("%+v, a diff of %d bytes", r, d.Upload)
	}
	wantAt(t, r.Ref, one)
	if again, err := place.To(t.Context(), a, one); err != nil || again.Status != place.Unchanged || again.Uploaded != 0 {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := place.To(t.Context(), a, big); err == nil || !strings.Contains(err.Error(), "contains another package, sha256:") {
		t.Errorf("got %v", err)
	}
	t.Run("replaced", func(t *testing.T) {
		a.Replace = true
		d, err := a.Diff(t.Context(), big)
		want := place.Diff{Status: place.Replaced, Change: names[:4], Keep: names[4:], Upload: d.Upload}
		if diff := cmp.Diff(want, d); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		staged, err := a.Stage(t.Context(), big)
		if err != nil {
			t.Fatal(err)
		}
		defer staged.Close()
		wantAt(t, r.Ref, one)
		if r, err := staged.Commit(t.Context()); err != nil || r.Status != place.Replaced {
			t.Errorf("%+v, %v", r, err)
		}
		wantAt(t, r.Ref, big)
		if err := staged.Revert(t.Context()); err == nil || !strings.Contains(err.Error(), "the package stays") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a file that the new one lacks", func(t *testing.T) {
		less := placetest.Package(t, "less")
		less.Manifest.Files = less.Manifest.Files[:3]
		if r, err := place.To(t.Context(), a, less); err != nil || r.Status != place.Replaced {
			t.Fatalf("%+v, %v", r, err)
		}
		wantAt(t, r.Ref, less)
		b, err := openBucket(a)
		if err != nil {
			t.Fatal(err)
		}
		if objects, err := b.list(t.Context()); err != nil || len(objects) != 4 {
			t.Errorf("%v, %v", objects, err)
		}
	})
	t.Run("new and reverted", func(t *testing.T) {
		staged, err := store("models/b").Stage(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := staged.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := staged.Revert(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := Open(t.Context(), strings.TrimPrefix(store("models/b").ref(t), "s3://"),
			place.OpenOptions{Transfer: placetest.Quick}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("two publishers", func(t *testing.T) {
		c := store("taken/c")
		first, err := c.Stage(t.Context(), big)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := place.To(t.Context(), c, one); err != nil {
			t.Fatal(err)
		}
		if _, err := first.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), "somebody else") {
			t.Errorf("got %v", err)
		}
		wantAt(t, c.ref(t), one)
	})
	t.Run("not ours", func(t *testing.T) {
		d := store("other")
		b, err := openBucket(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.PutObject(t.Context(), b.bucket, "other/holiday.jpg", strings.NewReader("x"), 1, "", digest.Of([]byte("x")).Hex(),
			minio.PutObjectOptions{DisableContentSha256: true}); err != nil {
			t.Fatal(err)
		}
		d.Replace = true
		if _, err := place.To(t.Context(), d, one); err == nil || !strings.Contains(err.Error(), `"holiday.jpg"`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("damaged package", func(t *testing.T) {
		p := placetest.Big(t, smallSize+1)
		placetest.Write(t, filepath.Join(p.Dir, "llm.mnn.weight"), strings.Repeat("x", smallSize+1))
		if _, err := place.To(t.Context(), store("models/e"), p); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "llm.mnn.weight: has sha256") {
			t.Errorf("got %v", err)
		}
		p = placetest.Package(t, "x")
		placetest.Write(t, filepath.Join(p.Dir, "llm.mnn"), "llm.mnn y")
		if _, err := place.To(t.Context(), store("models/f"), p); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("got %v", err)
		}
		if _, err := Open(t.Context(), strings.TrimPrefix(store("models/f").ref(t), "s3://"),
			place.OpenOptions{Transfer: placetest.Quick}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a damaged package is there: %v", err)
		}
	})
	none := store("x")
	none.Ref = "s3://no-such-bucket/x"
	if _, err := place.To(t.Context(), none, one); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "create the bucket first") {
		t.Errorf("got %v", err)
	}
	for _, ref := range []string{"", "s3://", "bucket/x", "s3://bucket/../x", "s3://bucket/a\\b"} {
		if _, err := place.To(t.Context(), Place{Ref: ref, Endpoint: none.Endpoint, Transfer: placetest.Quick}, one); err == nil {
			t.Errorf("%q was taken", ref)
		}
	}
}

// TestS3Trouble: whatever goes wrong for a while, the package arrives.
func TestS3Trouble(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	p := placetest.Big(t, 2*placetest.S3Part+12345)
	is := func(method, contains string) func(r *http.Request) bool {
		return func(r *http.Request) bool { return r.Method == method && strings.Contains(r.URL.String(), contains) }
	}
	cut := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 100_000)
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			c.Close()
		}
	}
	answer := func(status int, code string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			fakes3.Fail(w, status, code)
		}
	}
	for name, tc := range map[string]struct {
		match func(r *http.Request) bool
		fault func(w http.ResponseWriter, r *http.Request)
	}{
		"cut in a part":     {is("PUT", "partNumber=2"), cut},
		"503 for a part":    {is("PUT", "partNumber=1"), answer(503, "SlowDown")},
		"500 at the end":    {is("POST", "uploadId="), answer(500, "InternalError")},
		"500 for the list":  {is("GET", "list-type"), answer(500, "InternalError")},
		"cut manifest":      {is("PUT", manifest.FileName), cut},
		"429 for a look":    {is("GET", manifest.FileName), answer(429, "TooManyRequests")},
		"500 at the begin":  {is("POST", "uploads="), answer(500, "InternalError")},
		"cut marker":        {is("PUT", marker), cut},
		"marker not gone":   {is("DELETE", marker), answer(503, "SlowDown")},
		"wrong part digest": {is("PUT", "partNumber=3"), answer(503, "ServiceUnavailable")},
	} {
		t.Run(name, func(t *testing.T) {
			s := placetest.NewS3(t)
			var mu sync.Mutex
			done := false
			s.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				if done || !tc.match(r) {
					return false
				}
				done = true
				tc.fault(w, r)
				return true
			})
			if _, err := place.To(t.Context(), placeAt(s, "a"), p); err != nil {
				t.Fatal(err)
			}
			s.SetFault(nil)
			wantAt(t, placeAt(s, "a").ref(t), p)
		})
	}
}

// TestS3LostAnswer: what an answer that was lost would have said is found out, for what cannot be done twice.
func TestS3LostAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	p := placetest.Big(t, 2*placetest.S3Part+12345)
	for name, tc := range map[string]struct{ method, contains string }{
		"of the manifest":   {"PUT", manifest.FileName},
		"of the completion": {"POST", "uploadId="},
	} {
		t.Run(name, func(t *testing.T) {
			s := placetest.NewS3(t)
			var lost atomic.Bool
			s.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != tc.method || !strings.Contains(r.URL.String(), tc.contains) || lost.Swap(true) {
					return false
				}
				s.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			})
			r, err := place.To(t.Context(), placeAt(s, "a"), p)
			if err != nil || r.Status != place.Published || !lost.Load() {
				t.Errorf("%+v, %v", r, err)
			}
			wantAt(t, placeAt(s, "a").ref(t), p)
		})
	}
}

// TestS3GivesUp: a store that does not answer keeps nobody who clears up behind a package whose bytes are wrong.
func TestS3GivesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	p := placetest.Big(t, 2*placetest.S3Part+12345)
	s := placetest.NewS3(t)
	to := placeAt(s, "a")
	to.Transfer.Stall = 100 * time.Millisecond
	var asked atomic.Int32
	s.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || !r.URL.Query().Has("uploadId") {
			return false
		}
		asked.Add(1)
		<-r.Context().Done()
		return true
	})
	f, err := os.OpenFile(filepath.Join(p.Dir, "llm.mnn.weight"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("not what is listed"), placetest.S3Part)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := place.To(t.Context(), to, p); !errors.Is(err, tensor.ErrCorrupt) || asked.Load() == 0 {
		t.Errorf("%v, asked %d times", err, asked.Load())
	}
}

// TestS3LeftOver: a package that is shown is published, regardless of objects that it does not have.
func TestS3LeftOver(t *testing.T) {
	s := placetest.NewS3(t)
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	placetest.Write(t, filepath.Join(one.Dir, "old.txt"), "old")
	one.Manifest.Files = append(one.Manifest.Files, place.Loaded("old.txt", []byte("old")).File)
	one.Manifest.Sort()
	to := placeAt(s, "a")
	if _, err := place.To(t.Context(), to, one); err != nil {
		t.Fatal(err)
	}
	s.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			fakes3.Fail(w, 403, "AccessDenied")
		}
		return r.Method == http.MethodDelete
	})
	to.Replace = true
	if r, err := place.To(t.Context(), to, two); err != nil || r.Status != place.Replaced {
		t.Errorf("%+v, %v", r, err)
	}
	wantAt(t, to.ref(t), two)
}

// TestS3Resume: parts that arrived are not sent again, and nothing is visible before the end.
func TestS3Resume(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	s := placetest.NewS3(t)
	p := placetest.Big(t, 3*placetest.S3Part)
	ctx, cancel := context.WithCancel(t.Context())
	s.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.RawQuery, "partNumber=3") {
			for _, n := s.Pending(); n < 2 && r.Context().Err() == nil; _, n = s.Pending() {
				time.Sleep(time.Millisecond)
			}
			cancel()
			return true
		}
		return false
	})
	if _, err := place.To(ctx, placeAt(s, "a"), p); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if got := s.Keys(); !slices.Equal(got, []string{"a/" + marker}) {
		t.Errorf("visible: %q", got)
	}
	s.SetFault(nil)
	r, err := place.To(t.Context(), placeAt(s, "a"), p)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := s.Pending(); r.Uploaded != r.Bytes-2*placetest.S3Part || n != 0 {
		t.Errorf("%d bytes were sent behind two parts, want %d; %d uploads are left", r.Uploaded, r.Bytes-2*placetest.S3Part, n)
	}
	wantAt(t, r.Ref, p)
}

// TestS3Refuses: what does not get better is one clear error without secrets.
func TestS3Refuses(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	p := placetest.Package(t, "one")
	s := placetest.NewS3(t)
	if _, err := place.To(t.Context(), placeAt(s, "a"), p); err != nil {
		t.Fatal(err)
	}
	t.Run("rights", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", "somebody")
		if _, err := place.To(t.Context(), placeAt(s, "b"), p); !errors.Is(err, fs.ErrPermission) ||
			!strings.Contains(err.Error(), "AWS_PROFILE") || strings.Contains(err.Error(), "secret-key") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("down", func(t *testing.T) {
		s.SetFault(func(w http.ResponseWriter, r *http.Request) bool { fakes3.Fail(w, 500, "InternalError"); return true })
		defer s.SetFault(nil)
		if _, err := place.To(t.Context(), placeAt(s, "b"), p); err == nil || !strings.Contains(err.Error(), "5 tries failed") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("busy for an hour", func(t *testing.T) {
		s := placetest.NewS3(t)
		s.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Retry-After", "3600")
			fakes3.Fail(w, 503, "SlowDown")
			return true
		})
		if _, err := place.To(t.Context(), placeAt(s, "b"), p); err == nil || !strings.Contains(err.Error(), "asks to wait 1h0m0s") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("replaced while it is pulled", func(t *testing.T) {
		o, err := Open(t.Context(), strings.TrimPrefix(placeAt(s, "a").ref(t), "s3://"), place.OpenOptions{Transfer: placetest.Quick})
		if err != nil {
			t.Fatal(err)
		}
		f := p.Manifest.Files[1]
		rc, err := o.Range(f)(t.Context(), 0, f.Size)
		if err != nil {
			t.Fatal(err)
		}
		rc.Close()
		s.Put("a/"+f.Name, fakes3.NewObject(make([]byte, f.Size), nil))
		for range 2 { // known, and not known
			if _, err := o.Range(f)(t.Context(), 0, f.Size); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "being replaced") {
				t.Errorf("got %v", err)
			}
			f = p.Manifest.Files[0]
			s.Put("a/"+f.Name, fakes3.NewObject(make([]byte, f.Size+1), nil))
		}
	})
}

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

const publishTo = "PUBLISH_TEST_S3"

// children are the processes that tests kill.
var children = map[string]func(value string) error{publishTo: func(ref string) error {
	part, err := strconv.ParseInt(os.Getenv(publishTo+"_PART"), 10, 64)
	if err != nil {
		return err
	}
	return placetest.PublishChild(Place{Ref: ref, Endpoint: os.Getenv(publishTo + "_ENDPOINT"), Region: "us-east-1", Part: part})
}}
