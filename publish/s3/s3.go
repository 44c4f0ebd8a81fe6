// Package s3 publishes packages to prefixes of buckets in S3-compatible stores, and opens packages there.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	// marker lists unfinished uploads to a prefix, so that they are continued after a kill.
	marker = ".llmexport-upload.json"
	// sumKey is the user metadata with the SHA-256 of an object, which an ETag is not.
	sumKey = "Llmexport-Sha256"
	// listEntry is the size of an object's entry in a listing, in bytes.
	listEntry = 300
	// maxObjects bounds the objects of a prefix.
	maxObjects = 10_000
)

// Place publishes to a prefix of a bucket in an S3-compatible store, one object for each file; manifest.json and then
// its signature come last: a prefix without a manifest contains no package. Large files are multipart uploads, which
// are invisible until Commit completes them. When another package is replaced, files and manifest do not match for a
// moment in Commit, between the first file and manifest.json; a pull at that moment fails.
type Place struct {
	// Ref is s3://bucket/prefix.
	Ref string
	// Endpoint is the store's base URL; empty is AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or Amazon's.
	Endpoint string
	// Region is the bucket's; empty is AWS_REGION, AWS_DEFAULT_REGION or the one that the store reports.
	Region string
	// Replace allows replacing another package in the prefix, but no other objects.
	Replace bool
	// Private declares that the bucket is not public.
	Private bool
	// Transfer sets retries and timeouts of requests.
	Transfer transfer.Options
	// Part is the size of parts of large files in bytes; 0 is 16 MiB. Stores require at least 5 MiB.
	Part int64
}

// String names the prefix.
func (s Place) String() string { return "s3 " + strings.TrimPrefix(s.Ref, "s3://") }

// Public implements Store.
func (s Place) Public() bool { return !s.Private }

// store is a prefix of a bucket.
type store struct {
	minio.Core
	bucket, prefix   string // prefix is empty or ends in a slash
	endpoint, region string // as given, for references
	patience         transfer.Options
	secrets          *transfer.Secrets
}

// parse parses bucket, prefix and endpoint. The prefix is empty or ends in a slash. An error is a RefError.
func (s Place) parse() (bucket, prefix string, endpoint *url.URL, err error) {
	rest, ok := strings.CutPrefix(s.Ref, "s3://")
	bucket, prefix, _ = strings.Cut(rest, "/")
	if prefix = strings.Trim(prefix, "/"); !ok || prefix != "" && manifest.CheckName(prefix) != nil || s3utils.CheckValidBucketName(bucket) != nil {
		return "", "", nil, &place.RefError{Err: fmt.Errorf("%.300q does not have the form s3://bucket/prefix", s.Ref)}
	}
	if prefix != "" {
		prefix += "/"
	}
	address, key := s.Endpoint, "endpoint"
	for _, env := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if address == "" {
			address, key = os.Getenv(env), env
		}
	}
	endpoint, err = url.Parse(cmp.Or(address, "https://s3.amazonaws.com"))
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" ||
		strings.Trim(endpoint.Path, "/") != "" || endpoint.User != nil || endpoint.RawQuery != "" || endpoint.Fragment != "" {
		// The endpoint is not printed: it may contain a password.
		return "", "", nil, &place.RefError{Err: fmt.Errorf("%s does not have the form https://host or http://host:port", key)}
	}
	return bucket, prefix, endpoint, nil
}

// Check checks the syntax of the reference.
func (s Place) Check() error {
	_, _, _, err := s.parse()
	return err
}

// openBucket parses the reference and reads the credentials; it sends nothing.
func openBucket(s Place) (*store, error) {
	bucket, prefix, u, err := s.parse()
	if err != nil {
		return nil, err
	}
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, err
	}
	secrets := &transfer.Secrets{}
	metadata := &http.Client{Timeout: iamPatience,
		Transport: secrets.Transport(http.DefaultTransport, func(*http.Request) bool { return true })}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: metadata},
		}),
		Secure: u.Scheme == "https", Region: cmp.Or(s.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Transport: transfer.Listen(secrets.Transport(transport, nil)), MaxRetries: 1, // we retry ourselves
	})
	if err != nil {
		return nil, err
	}
	client.SetAppInfo("llmexport", "1")
	return &store{Core: minio.Core{Client: client}, bucket: bucket, prefix: prefix, endpoint: s.Endpoint, region: s.Region,
		patience: s.Transfer, secrets: secrets}, nil
}

// ref returns the reference for pull.
func (b *store) ref() string {
	q := url.Values{}
	if b.endpoint != "" {
		q.Set("endpoint", b.endpoint)
	}
	if b.region != "" {
		q.Set("region", b.region)
	}
	ref := "s3://" + b.bucket + "/" + strings.TrimSuffix(b.prefix, "/")
	if len(q) > 0 {
		ref += "?" + q.Encode()
	}
	return ref
}

// try runs f with retries.
func (b *store) try(ctx context.Context, what string, do func(ctx context.Context, touch func(int)) error) error {
	return transfer.Retry(ctx, what, b.patience, func(ctx context.Context, touch func(int)) (bool, error) {
		return false, b.explain(do(ctx, touch))
	})
}

// againCodes are the retryable error codes of a store: timeouts and damage in transfer.
var againCodes = []string{"SlowDown", "RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch"}

// explain describes the response of a store, without secrets, and makes it retryable if it is.
func (b *store) explain(err error) error { return b.secrets.HideError(explain(err)) }

// explain describes the response of a store, and makes it retryable if it is.
func explain(err error) error {
	again := (*transfer.Retryable)(nil)
	if err == nil || errors.As(err, &again) {
		return err
	}
	if answer := (minio.ErrorResponse{}); errors.As(err, &answer) && answer.StatusCode > 0 {
		e := &transfer.StatusError{Status: answer.StatusCode, Who: "the store", Code: transfer.Said(answer.Code), Message: transfer.Said(answer.Message)}
		// For a response that is not the store's own, the library repeats the status line.
		if text := http.StatusText(e.Status); e.Code == fmt.Sprint(e.Status, " ", text) {
			e.Code, e.Message = text, ""
		}
		switch {
		case e.Code == "NoSuchBucket":
			e.Hint = "create the bucket first"
		case e.Status == 401 || e.Status == 403:
			e.Hint = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and the rights of the account"
		}
		if transfer.Transient(e.Status) || slices.Contains(againCodes, e.Code) {
			return &transfer.Retryable{Err: e}
		}
		return e
	}
	// The library hides the cause of a broken connection in the error of the request.
	if u := (*url.Error)(nil); errors.As(err, &u) || transfer.Broken(err) {
		return &transfer.Retryable{Err: transfer.Redact(err)}
	}
	return transfer.Redact(err)
}

// object is an object of a prefix.
type object struct {
	size int64
	etag string
	sum  string // SHA-256 in our metadata; empty for foreign objects
}

// state is the state of a prefix and the effect of publishing to it.
type state struct {
	*store
	freight *place.Freight
	old     *manifest.Manifest
	objects map[string]object
	diff    place.Diff
	receipt place.Receipt
}

// Ready implements place.Store: the bucket can be listed, and the prefix contains nothing or a package.
func (s Place) Ready(ctx context.Context, could func(*manifest.Manifest) bool) error {
	b, err := openBucket(s)
	if err != nil {
		return err
	}
	x := &state{store: b}
	if err := x.load(ctx); err != nil {
		return err
	}
	if x.old != nil && !s.Replace && !could(x.old) {
		return fmt.Errorf("contains another package, %s; set replace to replace it", x.old.Digest)
	}
	return nil
}

// look reads the state of the prefix without changing it. The caller closes the freight.
func (s Place) look(ctx context.Context, p place.Package) (_ *state, err error) {
	b, err := openBucket(s)
	if err != nil {
		return nil, err
	}
	f, err := place.FreightOf(p)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	x := &state{store: b, freight: f}
	if err := x.load(ctx); err != nil {
		return nil, err
	}
	x.compare()
	x.receipt = f.Receipt("s3", b.ref(), x.diff.Status)
	switch {
	case x.diff.Status != place.Replaced, s.Replace, x.diff.Signs():
		return x, nil
	case x.diff.SignsAnew():
		return nil, place.ErrSignedAlready
	case x.same():
		bad := append(x.diff.Change, x.diff.Add...)[0]
		return nil, fmt.Errorf("contains this package, damaged; set replace to rewrite it: %s differs: %w", bad, tensor.ErrCorrupt)
	}
	return nil, fmt.Errorf("contains another package, %s; set replace to replace it", x.old.Digest)
}

// load lists the objects of the prefix and reads the manifest among them.
func (x *state) load(ctx context.Context) (err error) {
	if x.objects, err = x.list(ctx); err != nil {
		return err
	}
	if _, ok := x.objects[manifest.FileName]; ok {
		text, err := x.read(ctx, manifest.FileName, manifest.MaxSize)
		if err != nil {
			return err
		}
		if x.old, err = manifest.Parse(text); err != nil {
			return fmt.Errorf("contains no package that llmexport can read, so it is not replaced: %w", err)
		}
	}
	return x.onlyOurs()
}

// same reports whether the existing manifest is that of the package.
func (x *state) same() bool { return x.old != nil && x.old.Digest == x.freight.Sum }

// compare compares the objects with the package. The metadata of the manifest, which was read, are ignored.
func (x *state) compare() {
	had := map[string]string{}
	for name, o := range x.objects {
		if name != marker {
			had[name] = o.sum
		}
	}
	for _, f := range x.freight.Files {
		o, there := x.objects[f.Name]
		switch {
		case f.Name == manifest.FileName && x.same():
			had[f.Name] = f.SHA256
		case there && o.size != f.Size, there && f.Name == manifest.FileName:
			had[f.Name] = ""
		}
	}
	x.diff = place.Compare(had, x.freight.Files)
	switch {
	case x.old == nil:
		x.diff.Status = place.Published
	case len(x.diff.Add)+len(x.diff.Change) == 0:
		x.diff.Status = place.Unchanged
	default:
		x.diff.Status = place.Replaced
	}
}

// sends reports whether a file has to be sent.
func (x *state) sends(name string) bool {
	return slices.Contains(x.diff.Add, name) || slices.Contains(x.diff.Change, name)
}

// onlyOurs rejects a prefix with foreign objects.
func (x *state) onlyOurs() error {
	listed := map[string]bool{manifest.FileName: true, marker: true}
	if x.old != nil {
		listed[manifest.SignatureName] = true
		for _, f := range x.old.Files {
			listed[f.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.objects)) {
		if !listed[name] && x.objects[name].sum == "" {
			return fmt.Errorf("contains objects that are not part of a package, %q first, so it is not replaced", name)
		}
	}
	return nil
}

// list returns the objects of the prefix by name.
func (b *store) list(ctx context.Context) (map[string]object, error) {
	var objects map[string]object
	err := b.try(ctx, "list", func(ctx context.Context, touch func(int)) error {
		objects = map[string]object{}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for o := range b.Client.ListObjects(ctx, b.bucket, minio.ListObjectsOptions{Prefix: b.prefix, Recursive: true}) {
			touch(listEntry)
			if o.Err != nil {
				return o.Err
			}
			if len(objects) == maxObjects {
				return fmt.Errorf("contains more than %d objects, so it is not replaced", maxObjects)
			}
			objects[strings.TrimPrefix(o.Key, b.prefix)] = object{size: o.Size, etag: o.ETag}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, o := range objects {
		info, err := b.stat(ctx, name)
		if err != nil {
			return nil, err
		}
		o.sum = info.UserMetadata[sumKey]
		objects[name] = o
	}
	return objects, nil
}

func (b *store) stat(ctx context.Context, name string) (info minio.ObjectInfo, err error) {
	err = b.try(ctx, "look at "+name, func(ctx context.Context, _ func(int)) (err error) {
		info, err = b.StatObject(ctx, b.bucket, b.prefix+name, minio.StatObjectOptions{})
		return err
	})
	return info, err
}

// read reads a small object.
func (b *store) read(ctx context.Context, name string, limit int64) (text []byte, err error) {
	etag := ""
	err = b.try(ctx, "read "+name, func(ctx context.Context, touch func(int)) error {
		var o minio.GetObjectOptions
		if len(text) > 0 && etag != "" { // resume after a broken connection
			if err := errors.Join(o.SetMatchETag(etag), o.SetRange(int64(len(text)), 0)); err != nil {
				return err
			}
		}
		r, info, head, err := b.GetObject(ctx, b.bucket, b.prefix+name, o)
		status := minio.ToErrorResponse(err).StatusCode
		if len(text) > 0 && (status == http.StatusPreconditionFailed || status == http.StatusRequestedRangeNotSatisfiable) {
			text = nil
			return &transfer.Retryable{Err: fmt.Errorf("%s changed while it was read: %w", name, tensor.ErrCorrupt)}
		}
		if err != nil {
			return err
		}
		defer r.Close()
		first, _, size, err := transfer.ContentRange(head.Get("Content-Range"))
		if err != nil || first != int64(len(text)) {
			text, size = nil, -1 // read all of it again
		}
		more, err := io.ReadAll(io.LimitReader(transfer.Watch(r, touch), limit+1-int64(len(text))))
		text, etag = append(text, more...), info.ETag
		if int64(len(text)) > limit {
			return fmt.Errorf("%s is longer than %d bytes: %w", name, limit, tensor.ErrCorrupt)
		}
		if err == nil && int64(len(text)) < size {
			err = io.ErrUnexpectedEOF // another request reads the rest
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return text, nil
}

// put writes a small object; only makes it conditional unless nil.
func (b *store) put(ctx context.Context, name string, text []byte, only func(o *minio.PutObjectOptions)) error {
	sum := digest.Of(text).Hex()
	o := minio.PutObjectOptions{ContentType: contentType(name), UserMetadata: map[string]string{sumKey: sum}, DisableContentSha256: true}
	if only != nil {
		only(&o)
	}
	err := b.try(ctx, "write "+name, func(ctx context.Context, touch func(int)) error {
		_, err := b.PutObject(ctx, b.bucket, b.prefix+name, transfer.Watch(bytes.NewReader(text), touch), int64(len(text)), "", sum, o)
		return err
	})
	e := (*transfer.StatusError)(nil)
	switch {
	case only == nil || !errors.As(err, &e):
	case e.Code == "NotImplemented":
		return b.put(ctx, name, text, nil) // the store does not support conditions
	case (e.Status == http.StatusPreconditionFailed || e.Status == http.StatusConflict) && b.holds(ctx, name, sum):
		return nil // written by a try whose response was lost
	}
	return err
}

func (b *store) remove(ctx context.Context, name string) error {
	return b.try(ctx, "remove "+name, func(ctx context.Context, _ func(int)) error {
		return b.RemoveObject(ctx, b.bucket, b.prefix+name, minio.RemoveObjectOptions{})
	})
}

// contentType returns the content type of a file, for browsers.
func contentType(name string) string {
	switch {
	case strings.HasSuffix(name, ".json"):
		return "application/json"
	case strings.HasSuffix(name, ".md"), strings.HasSuffix(name, ".txt"), about.IsLicense(name):
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// Diff implements Store.
func (s Place) Diff(ctx context.Context, p place.Package) (place.Diff, error) {
	x, err := s.look(ctx, p)
	if err != nil {
		return place.Diff{}, err
	}
	return x.diff, x.freight.Close()
}

// uploads is the content of the marker.
type uploads struct {
	Package digest.Digest     `json:"package"`
	Uploads map[string]upload `json:"uploads"` // by file name
}

// upload is a multipart upload of a file.
type upload struct {
	ID     string `json:"id"`
	SHA256 string `json:"sha256"`
	Part   int64  `json:"part"` // bytes of each part but the last
}

// marker reads the unfinished uploads; nil if there are none.
func (b *store) marker(ctx context.Context) (*uploads, error) {
	text, err := b.read(ctx, marker, manifest.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m uploads
	if err := jsondoc.Decode(text, &m); err != nil {
		return nil, nil // unknown version: start again
	}
	return &m, nil
}
