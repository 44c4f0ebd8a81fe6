package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	partSize    = 16 << 20 // bytes of a part, unless a file would have more than s3Parts
	maxParts    = 9_000    // the limit of stores is storeParts
	storeParts  = 10_000   // parts of an upload, the limit of S3
	smallSize   = 1 << 20  // smaller files are written in one request, by Commit
	sendsAtOnce = 4        // concurrent uploads of parts
	iamPatience = 2 * time.Second
)

// staged is a package whose large files are uploads that are not visible yet.
type staged struct {
	*state
	s         Place
	uploads   uploads
	have      map[string]map[int]minio.ObjectPart // parts sent by a killed run, by file name and number
	parts     map[string][]minio.CompletePart     // by file name
	small     []place.Cargo
	committed bool
	fresh     bool // the prefix contained no package
	sent      atomic.Int64
}

// Stage implements Store: it uploads the parts of large files.
func (s Place) Stage(ctx context.Context, p place.Package) (_ place.Staged, err error) {
	at, err := s.look(ctx, p)
	if err != nil {
		return nil, err
	}
	x := &staged{state: at, s: s, have: map[string]map[int]minio.ObjectPart{}, parts: map[string][]minio.CompletePart{}, fresh: at.old == nil}
	if x.receipt.Status == place.Unchanged {
		return x, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.Close())
		}
	}()
	var large []place.Cargo
	for _, f := range x.freight.Files {
		switch {
		case f.InMemory() || !x.sends(f.Name): // Commit writes manifest and signature
		case f.Size >= smallSize:
			large = append(large, f)
		default:
			if _, err := f.ReadAll(); err != nil {
				return nil, err
			}
			x.small = append(x.small, f)
		}
	}
	if err := x.begin(ctx, large); err != nil {
		return nil, err
	}
	sends := make(chan struct{}, sendsAtOnce)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2) // files read concurrently
	all := make([][]minio.CompletePart, len(large))
	for i, f := range large {
		g.Go(func() (err error) {
			if all[i], err = x.upload(ctx, f, sends); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		if errors.Is(err, tensor.ErrCorrupt) { // they will not be continued
			err = errors.Join(err, x.giveUp(context.WithoutCancel(ctx)))
		}
		return nil, err
	}
	for i, f := range large {
		x.parts[f.Name] = all[i]
	}
	return x, nil
}

// begin starts uploads of large files, or takes over those of a killed run. The uploads of another package are aborted:
// its publisher notices that.
func (x *staged) begin(ctx context.Context, large []place.Cargo) error {
	was, err := x.marker(ctx)
	if err != nil {
		return err
	}
	x.uploads = uploads{Package: x.receipt.Digest, Uploads: map[string]upload{}}
	taken := map[string]bool{}
	for _, f := range large {
		u := upload{SHA256: f.SHA256, Part: max(cmp.Or(x.s.Part, partSize), (f.Size/maxParts>>20+1)<<20)}
		if was != nil {
			if old := was.Uploads[f.Name]; old.SHA256 == f.SHA256 && old.Part == u.Part {
				if parts, err := x.listParts(ctx, f.Name, old); err == nil {
					u.ID, taken[old.ID], x.have[f.Name] = old.ID, true, parts
				}
			}
		}
		if u.ID == "" {
			o := minio.PutObjectOptions{ContentType: contentType(f.Name), UserMetadata: map[string]string{sumKey: f.SHA256}}
			if err := x.try(ctx, "begin "+f.Name, func(ctx context.Context, _ func(int)) (err error) {
				u.ID, err = x.NewMultipartUpload(ctx, x.bucket, x.prefix+f.Name, o)
				return err
			}); err != nil {
				return err
			}
		}
		x.uploads.Uploads[f.Name] = u
	}
	text, err := json.Marshal(x.uploads)
	if err != nil {
		return err
	}
	if err := x.put(ctx, marker, text, nil); err != nil {
		return err
	}
	if was != nil {
		for name, u := range was.Uploads {
			if !taken[u.ID] {
				_ = x.abort(ctx, name, u) // it may have expired
			}
		}
	}
	return nil
}

// giveUp aborts the uploads of begin.
func (x *staged) giveUp(ctx context.Context) error {
	var errs []error
	for name, u := range x.uploads.Uploads {
		errs = append(errs, x.abort(ctx, name, u))
	}
	if err := errors.Join(errs...); err != nil {
		return err // the marker still lists them
	}
	return x.remove(ctx, marker)
}

func (b *store) abort(ctx context.Context, name string, u upload) error {
	return b.try(ctx, "give up "+name, func(ctx context.Context, _ func(int)) error {
		return b.AbortMultipartUpload(ctx, b.bucket, b.prefix+name, u.ID)
	})
}

// listParts returns the uploaded parts by number.
func (b *store) listParts(ctx context.Context, name string, u upload) (map[int]minio.ObjectPart, error) {
	parts := map[int]minio.ObjectPart{}
	for marker := 0; ; {
		var page minio.ListObjectPartsResult
		err := b.try(ctx, "list parts of "+name, func(ctx context.Context, _ func(int)) (err error) {
			page, err = b.ListObjectParts(ctx, b.bucket, b.prefix+name, u.ID, marker, 1000)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, p := range page.ObjectParts {
			parts[p.PartNumber] = p
		}
		if !page.IsTruncated || page.NextPartNumberMarker <= marker || page.NextPartNumberMarker > storeParts {
			return parts, nil
		}
		marker = page.NextPartNumberMarker
	}
}

// upload uploads the missing parts of a file. The ETag of a part is the MD5 of its content in stores that do not
// encrypt; in others, parts are sent again.
func (x *staged) upload(ctx context.Context, f place.Cargo, sends chan struct{}) ([]minio.CompletePart, error) {
	u, have := x.uploads.Uploads[f.Name], x.have[f.Name]
	content, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	src := io.NewSectionReader(content, 0, f.Size)
	whole := digest.New()
	parts := make([]minio.CompletePart, (f.Size+u.Part-1)/u.Part)
	g, ctx := errgroup.WithContext(ctx)
	for i := range parts {
		select {
		case sends <- struct{}{}:
		case <-ctx.Done():
			return nil, errors.Join(g.Wait(), context.Cause(ctx))
		}
		b := make([]byte, min(u.Part, f.Size-int64(i)*u.Part))
		if _, err := io.ReadFull(src, b); err != nil {
			<-sends
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				err = place.Changed(f.Name)
			}
			return nil, errors.Join(g.Wait(), err)
		}
		whole.Write(b)
		n := i + 1
		if h, ok := have[n]; ok && h.Size == int64(len(b)) {
			if sum := md5.Sum(b); strings.Trim(h.ETag, `"`) == hex.EncodeToString(sum[:]) {
				parts[i] = minio.CompletePart{PartNumber: n, ETag: h.ETag}
				<-sends
				continue
			}
		}
		g.Go(func() error {
			defer func() { <-sends }()
			part, err := x.send(ctx, f.Name, u, n, b)
			parts[i] = minio.CompletePart{PartNumber: n, ETag: part.ETag}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if got := whole.Hex(); got != f.SHA256 {
		return nil, fmt.Errorf("has sha256 %s, the manifest lists %s: %w", got, f.SHA256, tensor.ErrCorrupt)
	}
	return parts, nil
}

// send uploads one part, and counts its bytes.
func (x *staged) send(ctx context.Context, name string, u upload, n int, b []byte) (minio.ObjectPart, error) {
	part, err := x.sendPart(ctx, name, u, n, b)
	if err == nil {
		x.sent.Add(int64(len(b)))
	}
	return part, err
}

// sendPart uploads one part; the store checks its SHA-256.
func (b *store) sendPart(ctx context.Context, name string, u upload, n int, text []byte) (part minio.ObjectPart, err error) {
	o := minio.PutObjectPartOptions{Sha256Hex: digest.Of(text).Hex(), DisableContentSha256: true} // sign it as a whole, not in chunks
	err = b.try(ctx, fmt.Sprintf("send part %d of %s", n, name), func(ctx context.Context, touch func(int)) (err error) {
		part, err = b.PutObjectPart(ctx, b.bucket, b.prefix+name, u.ID, n, transfer.Watch(bytes.NewReader(text), touch), int64(len(text)), o)
		return err
	})
	return part, err
}

// Commit implements Staged: files first, manifest.json last. The prefix never contains the signature of another
// manifest: the old one is removed before, and the new one is written after the manifest.
func (x *staged) Commit(ctx context.Context) (place.Receipt, error) {
	if x.committed || x.receipt.Status == place.Unchanged {
		return x.receipt, nil
	}
	if err := x.commit(ctx); err != nil {
		return place.Receipt{}, err
	}
	x.committed = true
	x.receipt.Uploaded = x.sent.Load()
	return x.receipt, nil
}

func (x *staged) commit(ctx context.Context) error {
	if err := x.stillOurs(ctx); err != nil {
		return err
	}
	for _, f := range x.small {
		if err := x.write(ctx, f, nil); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.parts)) {
		if err := x.try(ctx, "complete "+name, func(ctx context.Context, _ func(int)) error {
			_, err := x.CompleteMultipartUpload(ctx, x.bucket, x.prefix+name, x.uploads.Uploads[name].ID, x.parts[name], minio.PutObjectOptions{})
			return err
		}); err != nil && !x.holds(ctx, name, x.uploads.Uploads[name].SHA256) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if !x.same() {
		if err := x.writeManifest(ctx); err != nil {
			return err
		}
	}
	if f, ok := x.freight.Find(manifest.SignatureName); ok && x.sends(f.Name) {
		if err := x.write(ctx, f, nil); err != nil {
			return err
		}
	}
	// The package is visible: later errors are only warnings.
	for _, name := range append(x.diff.Remove, marker) {
		if err := x.remove(ctx, name); err != nil {
			zerolog.Ctx(ctx).Warn().Err(err).Str("to", x.receipt.Ref).Str("object", name).Msg("an object of the replaced package could not be removed")
		}
	}
	return nil
}

// write writes a small file.
func (x *staged) write(ctx context.Context, f place.Cargo, only func(o *minio.PutObjectOptions)) error {
	text, err := f.ReadAll()
	if err != nil {
		return err
	}
	if err := x.put(ctx, f.Name, text, only); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	x.sent.Add(f.Size)
	return nil
}

// writeManifest makes the package visible.
func (x *staged) writeManifest(ctx context.Context) error {
	if _, signed := x.objects[manifest.SignatureName]; signed {
		if err := x.remove(ctx, manifest.SignatureName); err != nil {
			return err
		}
	}
	f, _ := x.freight.Find(manifest.FileName)
	was := x.objects[manifest.FileName].etag
	return x.write(ctx, f, func(o *minio.PutObjectOptions) {
		if was == "" {
			o.SetMatchETagExcept("*")
		} else {
			o.SetMatchETag(was)
		}
	})
}

// stillOurs detects another publisher.
func (x *staged) stillOurs(ctx context.Context) error {
	m, err := x.marker(ctx)
	if err != nil {
		return err
	}
	if m == nil || m.Package != x.receipt.Digest {
		return errors.New("somebody else has started publishing here")
	}
	now, err := x.stat(ctx, manifest.FileName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if now.ETag != x.objects[manifest.FileName].etag {
		return errors.New("somebody else has published here in the meantime")
	}
	return nil
}

// holds reports whether an object exists: if the response to its write was lost, a retry may be rejected.
func (b *store) holds(ctx context.Context, name, sum string) bool {
	info, err := b.stat(ctx, name)
	return err == nil && info.UserMetadata[sumKey] == sum
}

// Revert implements Staged. Files of a replaced package are lost, so only an empty prefix can be restored.
func (x *staged) Revert(ctx context.Context) error {
	if !x.committed {
		return nil
	}
	if !x.fresh && !x.diff.Signs() {
		return fmt.Errorf("%s: the package stays, because it has overwritten the objects of the one that it replaced", x.s.Ref)
	}
	var errs []error
	for _, f := range slices.Backward(x.freight.Files) { // manifest.json comes first
		if x.fresh || f.Name == manifest.SignatureName {
			errs = append(errs, x.remove(ctx, f.Name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: some of the package stays: %w", x.s, err)
	}
	x.committed = false
	return nil
}

// Close implements Staged. Uploads remain for the next Stage; the marker lists them.
func (x *staged) Close() error { return x.freight.Close() }
