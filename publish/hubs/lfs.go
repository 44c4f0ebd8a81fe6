package hubs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	uploadsAtOnce = 4 // concurrent uploads
	askAgain      = 3 // requests for new addresses per object
	batchObjects  = 100
)

// errRefused is the error for a rejected storage address, most often an expired one.
var errRefused = errors.New("storage does not accept the upload")

// lfs uploads objects to the storage of a hub.
//
// A broken connection costs only the part in transfer. Expired addresses are replaced; finished parts are kept if the
// new addresses belong to the same upload. The parts of an earlier process are not continued: the protocol cannot list
// existing parts. Existing objects are never sent again.
type lfs struct {
	http *transfer.Client
	o    transfer.Options
	// batch requests the addresses of objects.
	batch func(ctx context.Context, objects []place.Cargo) (map[string]*lfsUpload, error)
	// accept checks the response to an upload; nil is judgeUpload.
	accept func(*http.Response) error
	// sent counts accepted bytes.
	sent atomic.Int64
}

// send uploads all objects.
func (l *lfs) send(ctx context.Context, objects []place.Cargo) error {
	slots := make(chan struct{}, uploadsAtOnce)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(uploadsAtOnce)
	seen := map[string]bool{}
	for len(objects) > 0 && ctx.Err() == nil {
		some := objects[:min(len(objects), batchObjects)]
		objects = objects[len(some):]
		uploads, err := l.batch(ctx, some)
		if err != nil {
			g.Go(func() error { return err })
			break
		}
		for _, c := range some {
			u := uploads[c.SHA256]
			if u == nil || seen[c.SHA256] {
				continue
			}
			seen[c.SHA256] = true
			g.Go(func() error {
				if err := l.object(ctx, c, u, slots); err != nil {
					return fmt.Errorf("%s: %w", c.Name, err)
				}
				l.sent.Add(c.Size)
				return nil
			})
		}
	}
	return g.Wait()
}

// lfsObject is an object in a batch request.
type lfsObject struct {
	OID  string `json:"oid"`
	Size int64  `json:"size"`
}

// lfsObjects returns the objects of a batch request without duplicates.
func lfsObjects(files []place.Cargo) (list []lfsObject, sizes map[string]int64) {
	sizes = map[string]int64{}
	for _, c := range files {
		if _, twice := sizes[c.SHA256]; !twice {
			list = append(list, lfsObject{c.SHA256, c.Size})
		}
		sizes[c.SHA256] = c.Size
	}
	return list, sizes
}

// object uploads an object, with new addresses after old ones expire.
func (l *lfs) object(ctx context.Context, c place.Cargo, u *lfsUpload, slots chan struct{}) error {
	var done progress
	for try := 1; ; try++ {
		err := l.upload(ctx, c, u, &done, slots)
		if !errors.Is(err, errRefused) || try == askAgain {
			return err
		}
		uploads, berr := l.batch(ctx, []place.Cargo{c})
		if berr != nil {
			return berr
		}
		if u = uploads[c.SHA256]; u == nil {
			return nil // it exists already
		}
	}
}

func (l *lfs) upload(ctx context.Context, c place.Cargo, u *lfsUpload, done *progress, slots chan struct{}) error {
	f, err := c.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	if u.chunk == 0 {
		err = l.whole(ctx, c, u, f, slots)
	} else {
		err = l.inParts(ctx, c, u, f, done, slots)
	}
	if err != nil || u.verify == nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"oid": c.SHA256, "size": c.Size})
	if err != nil {
		return err
	}
	return l.tell(ctx, u.verify, body)
}

// whole uploads an object in one request.
func (l *lfs) whole(ctx context.Context, c place.Cargo, u *lfsUpload, f place.Content, slots chan struct{}) error {
	var p *place.Proof
	_, err := l.put(ctx, u.to, u.header, c.Size, slots, func() io.Reader {
		p = place.NewProof(c.File, f)
		return p
	}, func() error { return p.Err() })
	return err
}

// progress is the state of an upload in parts.
type progress struct {
	upload string // identity of the upload
	etags  []string
	sums   []uint32 // CRC-32C of each part as it was sent
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// inParts uploads several parts concurrently. The digest needs the content in order, so the file is read a second time,
// mostly from the page cache; checksums of the parts prove that both readings are the same.
func (l *lfs) inParts(ctx context.Context, c place.Cargo, u *lfsUpload, f place.Content, done *progress, slots chan struct{}) error {
	if id := uploadID(u.to); id == "" || id != done.upload || len(done.etags) != len(u.parts) {
		*done = progress{upload: id, etags: make([]string, len(u.parts)), sums: make([]uint32, len(u.parts))}
	}
	section := func(i int) *io.SectionReader {
		off := int64(i) * u.chunk
		return io.NewSectionReader(f, off, min(u.chunk, c.Size-off))
	}
	sums := make([]uint32, len(u.parts))
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		h := digest.New()
		for i := range sums {
			crc := crc32.New(castagnoli)
			n, err := io.Copy(io.MultiWriter(h, crc), transfer.Cancellable(gctx, section(i)))
			if err != nil {
				return err
			}
			if n != section(i).Size() {
				return place.Changed(c.Name)
			}
			sums[i] = crc.Sum32()
		}
		return c.Match(manifest.File{Size: c.Size, SHA256: h.Hex()})
	})
	next := atomic.Int64{}
	for range min(uploadsAtOnce, len(u.parts)) {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(u.parts) {
					return nil
				}
				if done.etags[i] != "" {
					continue
				}
				var crc *summed
				head, err := l.put(gctx, u.parts[i], nil, section(i).Size(), slots, func() io.Reader {
					crc = &summed{name: c.Name, r: section(i)}
					return crc
				}, func() error { return crc.err() })
				if err != nil {
					return fmt.Errorf("part %d of %d: %w", i+1, len(u.parts), err)
				}
				etag := head.Get("ETag")
				if etag == "" {
					return fmt.Errorf("part %d of %d: storage returned no ETag: %w", i+1, len(u.parts), tensor.ErrUnsupported)
				}
				done.sums[i], done.etags[i] = crc.sum.Load(), etag
			}
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	type part struct {
		Number int    `json:"partNumber"`
		ETag   string `json:"etag"`
	}
	var parts []part
	for i := range sums {
		if sums[i] != done.sums[i] {
			return place.Changed(c.Name)
		}
		parts = append(parts, part{i + 1, done.etags[i]})
	}
	body, err := json.Marshal(map[string]any{"oid": c.SHA256, "parts": parts})
	if err != nil {
		return err
	}
	err = l.tell(ctx, u.to, body)
	if err != nil {
		// Parts that storage rejects are sent again, to new addresses.
		*done = progress{}
	}
	return err
}

// uploadID returns the identity of an upload in parts; empty if its address has none.
func uploadID(u *url.URL) string { return u.Query().Get("uploadId") }

// summed is a reader that computes a checksum.
type summed struct {
	name string
	r    *io.SectionReader
	n    int64
	crc  uint32
	sum  atomic.Uint32 // crc, for other goroutines
	bad  atomic.Pointer[error]
}

func (s *summed) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.crc = crc32.Update(s.crc, castagnoli, b[:n])
	s.sum.Store(s.crc)
	s.n += int64(n)
	if err == io.EOF && s.n < s.r.Size() {
		err = place.Changed(s.name)
	}
	if err != nil && err != io.EOF {
		s.bad.Store(&err)
	}
	return n, err
}

// err returns the error of reading, or nil.
func (s *summed) err() error {
	if s == nil { // nothing has been read
		return nil
	}
	if bad := s.bad.Load(); bad != nil {
		return *bad
	}
	return nil
}

// put uploads n bytes to an address of storage, with retries; bad returns an error in the bytes themselves. It returns
// the response header.
func (l *lfs) put(ctx context.Context, to *url.URL, header http.Header, n int64, slots chan struct{}, body func() io.Reader,
	bad func() error) (http.Header, error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var head http.Header
	err := transfer.Retry(ctx, "upload", l.o, func(ctx context.Context, touch func(int)) (bool, error) {
		resp, err := l.http.Do(ctx, http.MethodPut, to, header, func() (io.Reader, int64, error) {
			return transfer.Watch(body(), touch), n, nil
		})
		if err != nil {
			return false, cmp.Or(bad(), err)
		}
		defer drain(resp)
		head = resp.Header
		if l.accept != nil {
			return false, l.accept(resp)
		}
		return false, judgeUpload(resp)
	})
	return head, err
}

// tell posts JSON about an upload.
func (l *lfs) tell(ctx context.Context, to *url.URL, body []byte) error {
	header := http.Header{"Content-Type": {"application/vnd.git-lfs+json"}, "Accept": {"application/vnd.git-lfs+json"}}
	return transfer.Retry(ctx, "upload", slow(l.o), func(ctx context.Context, _ func(int)) (bool, error) {
		resp, err := l.http.Do(ctx, http.MethodPost, to, header, inBody(body))
		if err != nil {
			return false, repeatable(err)
		}
		defer drain(resp)
		return false, judgeUpload(resp)
	})
}

// judgeUpload distinguishes expired addresses, and other errors that new addresses may fix, from the rest.
func judgeUpload(resp *http.Response) error {
	switch s := resp.StatusCode; {
	case s/100 == 2:
		return nil
	case transfer.Transient(s):
		return transfer.StatusOf(resp)
	case s == 400 || s == 401 || s == 403 || s == 404 || s == 409 || s == 410 || s == 412:
		return fmt.Errorf("%w: %w", errRefused, transfer.StatusOf(resp))
	default:
		return transfer.StatusOf(resp)
	}
}

// drain reads the rest of a body, so that the connection can be reused.
func drain(resp *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	resp.Body.Close()
}
