package publish

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakePart is the size of parts in tests; real stores take no less than 5 MiB.
const fakePart = 1 << 20

// fakeS3 is as much of an S3 store as publishing needs, with faults. The tagged tests run against a real one.
type fakeS3 struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	objects  map[string]s3Stored // by key
	uploads  map[string]*s3Pending
	next     int
	requests []string
	got      int64 // bytes of content that were sent
	// fault may answer in place of the store; true if it has.
	fault func(w http.ResponseWriter, r *http.Request) bool
	// plain makes the store one without conditional writes.
	plain bool
}

type s3Stored struct {
	body []byte
	meta http.Header
	etag string
}

type s3Pending struct {
	key   string
	meta  http.Header
	parts map[int]s3Stored
}

func newFakeS3(t testing.TB) *fakeS3 {
	s := &fakeS3{t: t, objects: map[string]s3Stored{}, uploads: map[string]*s3Pending{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "me")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-key")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return s
}

func (s *fakeS3) store(prefix string) S3 {
	return S3{Ref: "s3://bucket/" + prefix, Endpoint: s.URL, Region: "us-east-1", patience: quick, part: fakePart}
}

func (s *fakeS3) setFault(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.requests, s.got = f, nil, 0
}

// keys lists what a reader sees.
func (s *fakeS3) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

func (s *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault := s.fault
	s.requests = append(s.requests, r.Method+" "+r.URL.String())
	s.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.Contains(r.Header.Get("Authorization"), "Credential=me/") {
		fail(w, 403, "AccessDenied")
		return
	}
	if sum := r.Header.Get("X-Amz-Content-Sha256"); len(sum) == 64 {
		if got := sha256.Sum256(body); hex.EncodeToString(got[:]) != sum {
			fail(w, 400, "XAmzContentSHA256Mismatch")
			return
		}
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != "bucket" {
		fail(w, 404, "NoSuchBucket")
		return
	}
	q := r.URL.Query()
	switch {
	case key == "" && q.Has("location"):
		fmt.Fprint(w, `<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></LocationConstraint>`)
	case key == "":
		s.list(w, q.Get("prefix"))
	case q.Has("uploadId") || q.Has("uploads"):
		s.multipart(w, r, key, body)
	case r.Method == http.MethodPut:
		was, there := s.objects[key]
		match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
		if s.plain && (match != "" || none != "") {
			fail(w, 501, "NotImplemented")
			return
		}
		if none == "*" && there || match != "" && strings.Trim(match, `"`) != was.etag {
			fail(w, 412, "PreconditionFailed")
			return
		}
		s.got += int64(len(body))
		s.objects[key] = stored(body, r.Header)
		w.Header().Set("ETag", `"`+s.objects[key].etag+`"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(204)
	default:
		o, ok := s.objects[key]
		if !ok {
			fail(w, 404, "NoSuchKey")
			return
		}
		maps.Copy(w.Header(), o.meta)
		w.Header().Set("ETag", `"`+o.etag+`"`)
		w.Header().Set("Last-Modified", time.Unix(1e9, 0).UTC().Format(http.TimeFormat))
		http.ServeContent(w, r, "", time.Unix(1e9, 0), strings.NewReader(string(o.body)))
	}
}

func stored(body []byte, h http.Header) s3Stored {
	sum := md5.Sum(body)
	o := s3Stored{body: body, etag: hex.EncodeToString(sum[:]), meta: http.Header{}}
	for k, v := range h {
		if strings.HasPrefix(k, "X-Amz-Meta-") || k == "Content-Type" {
			o.meta[k] = v
		}
	}
	return o
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
}

func (s *fakeS3) list(w http.ResponseWriter, prefix string) {
	fmt.Fprint(w, `<ListBucketResult><IsTruncated>false</IsTruncated>`)
	for _, k := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(k, prefix) {
			fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size><ETag>&quot;%s&quot;</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>", k, len(s.objects[k].body), s.objects[k].etag)
		}
	}
	fmt.Fprint(w, `</ListBucketResult>`)
}

func (s *fakeS3) multipart(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	id := r.URL.Query().Get("uploadId")
	u := s.uploads[id]
	if id == "" {
		s.next++
		id = "upload-" + strconv.Itoa(s.next)
		s.uploads[id] = &s3Pending{key, stored(nil, r.Header).meta, map[int]s3Stored{}}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
		return
	}
	if u == nil || u.key != key {
		fail(w, 404, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		n, err := strconv.Atoi(r.URL.Query().Get("partNumber"))
		if err != nil {
			fail(w, 400, "InvalidArgument")
			return
		}
		s.got += int64(len(body))
		u.parts[n] = stored(body, nil)
		w.Header().Set("ETag", `"`+u.parts[n].etag+`"`)
	case http.MethodGet:
		fmt.Fprint(w, `<ListPartsResult><IsTruncated>false</IsTruncated>`)
		for _, n := range slices.Sorted(maps.Keys(u.parts)) {
			fmt.Fprintf(w, "<Part><PartNumber>%d</PartNumber><Size>%d</Size><ETag>&quot;%s&quot;</ETag></Part>", n, len(u.parts[n].body), u.parts[n].etag)
		}
		fmt.Fprint(w, `</ListPartsResult>`)
	case http.MethodDelete:
		delete(s.uploads, id)
		w.WriteHeader(204)
	case http.MethodPost:
		var want struct {
			Parts []struct {
				PartNumber int
				ETag       string
			} `xml:"Part"`
		}
		if xml.Unmarshal(body, &want) != nil || len(want.Parts) == 0 {
			fail(w, 400, "MalformedXML")
			return
		}
		var all []byte
		for _, p := range want.Parts {
			have, ok := u.parts[p.PartNumber]
			if !ok || have.etag != strings.Trim(p.ETag, `"`) {
				fail(w, 400, "InvalidPart")
				return
			}
			all = append(all, have.body...)
		}
		o := stored(all, nil)
		o.meta = u.meta
		o.etag += "-" + strconv.Itoa(len(want.Parts))
		s.objects[key] = o
		delete(s.uploads, id)
		fmt.Fprintf(w, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>", o.etag)
	}
}

// parts counts those of uploads that are not complete.
func (s *fakeS3) parts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, u := range s.uploads {
		n += len(u.parts)
	}
	return n
}
