// Package fakes3 implements the part of S3 that the tests of this repository need, in memory, with faults on demand. It
// checks the account and the digests that requests declare; it does not check signatures. Tests with build tags run
// against a real store.
package fakes3

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// AccessKey is the only account, SecretKey its secret.
	AccessKey, SecretKey = "me", "secret-key"
	// Bucket is the only bucket.
	Bucket = "bucket"
)

// Store is a store. Its methods are safe for concurrent use.
type Store struct {
	// Plain disables conditional writes; set it before the first request.
	Plain bool

	mu       sync.Mutex
	objects  map[string]Object   // by key
	uploads  map[string]*pending // by id
	next     int
	requests []string
	fault    func(w http.ResponseWriter, r *http.Request) bool
}

// Object is an object of the store.
type Object struct {
	Body []byte
	Meta http.Header // Content-Type and X-Amz-Meta-
	ETag string      // without quotes
	Time time.Time   // at which it was stored; that of Put is up to the caller
}

// pending is an incomplete multipart upload.
type pending struct {
	key   string
	meta  http.Header
	parts map[int]Object
	begun time.Time
}

// New returns an empty store.
func New() *Store { return &Store{objects: map[string]Object{}, uploads: map[string]*pending{}} }

// SetFault makes f respond in place of the store whenever it returns true, and forgets the requests so far; nil ends
// that.
func (s *Store) SetFault(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.requests = f, nil
}

// Objects returns the visible objects by key.
func (s *Store) Objects() map[string]Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objects)
}

// Keys returns the keys of the visible objects, sorted.
func (s *Store) Keys() []string { return slices.Sorted(maps.Keys(s.Objects())) }

// Put stores an object, as another client may.
func (s *Store) Put(key string, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = o
}

// Requests returns the requests since the last SetFault, each as its method and address.
func (s *Store) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Pending counts the incomplete multipart uploads and their parts.
func (s *Store) Pending() (uploads, parts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.uploads {
		parts += len(u.parts)
	}
	return len(s.uploads), parts
}

// ServeHTTP implements http.Handler.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	if !strings.Contains(r.Header.Get("Authorization"), "Credential="+AccessKey+"/") {
		Fail(w, 403, "AccessDenied")
		return
	}
	if sum := r.Header.Get("X-Amz-Content-Sha256"); len(sum) == 64 {
		if got := sha256.Sum256(body); hex.EncodeToString(got[:]) != sum {
			Fail(w, 400, "XAmzContentSHA256Mismatch")
			return
		}
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != Bucket {
		Fail(w, 404, "NoSuchBucket")
		return
	}
	q := r.URL.Query()
	switch {
	case key == "" && q.Has("location"):
		fmt.Fprint(w, `<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></LocationConstraint>`)
	case key == "" && q.Has("uploads"):
		s.listUploads(w, q.Get("prefix"))
	case key == "":
		s.list(w, q.Get("prefix"))
	case q.Has("uploadId") || q.Has("uploads"):
		s.multipart(w, r, key, body)
	case r.Method == http.MethodPut:
		was, there := s.objects[key]
		match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
		if s.Plain && (match != "" || none != "") {
			Fail(w, 501, "NotImplemented")
			return
		}
		if none == "*" && there || match != "" && strings.Trim(match, `"`) != was.ETag {
			Fail(w, 412, "PreconditionFailed")
			return
		}
		s.objects[key] = NewObject(body, r.Header)
		w.Header().Set("ETag", `"`+s.objects[key].ETag+`"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(204)
	default:
		o, ok := s.objects[key]
		if !ok {
			Fail(w, 404, "NoSuchKey")
			return
		}
		maps.Copy(w.Header(), o.Meta)
		w.Header().Set("ETag", `"`+o.ETag+`"`)
		w.Header().Set("Last-Modified", time.Unix(1e9, 0).UTC().Format(http.TimeFormat))
		http.ServeContent(w, r, "", time.Unix(1e9, 0), strings.NewReader(string(o.Body)))
	}
}

// NewObject returns an object with the headers that a store keeps.
func NewObject(body []byte, h http.Header) Object {
	sum := md5.Sum(body)
	o := Object{Body: body, ETag: hex.EncodeToString(sum[:]), Meta: http.Header{}, Time: time.Now()}
	for k, v := range h {
		if strings.HasPrefix(k, "X-Amz-Meta-") || k == "Content-Type" {
			o.Meta[k] = v
		}
	}
	return o
}

// Fail responds with an error of a store.
func Fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
}

func (s *Store) list(w http.ResponseWriter, prefix string) {
	fmt.Fprint(w, `<ListBucketResult><IsTruncated>false</IsTruncated>`)
	for _, k := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(k, prefix) {
			fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size><ETag>&quot;%s&quot;</ETag>", k, len(s.objects[k].Body), s.objects[k].ETag)
			fmt.Fprintf(w, "<LastModified>%s</LastModified></Contents>", s.objects[k].Time.UTC().Format(time.RFC3339Nano))
		}
	}
	fmt.Fprint(w, `</ListBucketResult>`)
}

func (s *Store) listUploads(w http.ResponseWriter, prefix string) {
	fmt.Fprint(w, `<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>`)
	for _, id := range slices.Sorted(maps.Keys(s.uploads)) {
		if u := s.uploads[id]; strings.HasPrefix(u.key, prefix) {
			fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>", u.key, id, u.begun.UTC().Format(time.RFC3339Nano))
		}
	}
	fmt.Fprint(w, `</ListMultipartUploadsResult>`)
}

func (s *Store) multipart(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	id := r.URL.Query().Get("uploadId")
	u := s.uploads[id]
	if id == "" {
		s.next++
		id = "upload-" + strconv.Itoa(s.next)
		s.uploads[id] = &pending{key, NewObject(nil, r.Header).Meta, map[int]Object{}, time.Now()}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
		return
	}
	if u == nil || u.key != key {
		Fail(w, 404, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		n, err := strconv.Atoi(r.URL.Query().Get("partNumber"))
		if err != nil {
			Fail(w, 400, "InvalidArgument")
			return
		}
		u.parts[n] = NewObject(body, nil)
		w.Header().Set("ETag", `"`+u.parts[n].ETag+`"`)
	case http.MethodGet:
		fmt.Fprint(w, `<ListPartsResult><IsTruncated>false</IsTruncated>`)
		for _, n := range slices.Sorted(maps.Keys(u.parts)) {
			fmt.Fprintf(w, "<Part><PartNumber>%d</PartNumber><Size>%d</Size><ETag>&quot;%s&quot;</ETag></Part>", n, len(u.parts[n].Body), u.parts[n].ETag)
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
			Fail(w, 400, "MalformedXML")
			return
		}
		var all []byte
		for _, p := range want.Parts {
			have, ok := u.parts[p.PartNumber]
			if !ok || have.ETag != strings.Trim(p.ETag, `"`) {
				Fail(w, 400, "InvalidPart")
				return
			}
			all = append(all, have.Body...)
		}
		o := NewObject(all, nil)
		o.Meta = u.meta
		o.ETag += "-" + strconv.Itoa(len(want.Parts))
		s.objects[key] = o
		delete(s.uploads, id)
		fmt.Fprintf(w, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>", o.ETag)
	}
}
