package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	orascontent "oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxManifest bounds an image manifest in bytes, as registries do.
const maxManifest = 4 << 20

// origin is one artifact of a registry.
type origin struct {
	repo   *repository
	desc   ocispec.Descriptor
	layers map[string]ocispec.Descriptor // by file name
	http   *transfer.Client
}

// Open opens the artifact that registry/repository[:tag|@digest] names; the default tag is latest. A tag or @channel may
// name a channel, whose packages are chosen from as the options say.
func Open(ctx context.Context, ref string, o place.OpenOptions) (place.Origin, error) {
	if rest, name := place.SplitChannel(ref); name != "" {
		ref = rest + ":" + name
	}
	origin, err := newOrigin(ctx, ref, o)
	if err != nil {
		return nil, err // the interface could contain a nil pointer
	}
	return origin, nil
}

func newOrigin(ctx context.Context, ref string, options place.OpenOptions) (*origin, error) {
	repo, err := openRepo(ref, options.Transfer)
	if err != nil {
		return nil, err
	}
	desc, err := repo.resolve(ctx, repo.Reference.ReferenceOrDefault())
	if err != nil {
		return nil, err
	}
	if desc == nil {
		return nil, fmt.Errorf("the registry has no %q there, or does not grant access to it: %w", repo.Reference.ReferenceOrDefault(), fs.ErrNotExist)
	}
	if desc.MediaType == ocispec.MediaTypeImageIndex {
		if desc, err = repo.choose(ctx, *desc, options.Choose); err != nil {
			return nil, err
		}
	}
	layers, err := repo.artifact(ctx, *desc)
	if err != nil {
		return nil, err
	}
	o := &origin{repo: repo, desc: *desc, layers: map[string]ocispec.Descriptor{}, http: repo.downloads()}
	for _, l := range layers {
		o.layers[l.Name] = l.desc
	}
	return o, nil
}

// downloads returns the client that reads blobs.
func (r *repository) downloads() *transfer.Client {
	home := &url.URL{Scheme: "https", Host: r.Reference.Host()}
	if r.PlainHTTP {
		home.Scheme = "http"
	}
	authorized := &http.Client{Transport: r.transport(home)}
	return &transfer.Client{Home: home, HTTP: authorized, UserAgent: "llmexport", Secrets: r.secrets}
}

// blobAt opens ranges of a blob.
func (r *repository) blobAt(from *transfer.Client, d ocispec.Descriptor) transfer.Range {
	return from.Range(from.Home.JoinPath("v2", r.Reference.Repository, "blobs", string(d.Digest)), d.Size)
}

// transport authorizes requests to the registry; others, which go to its storage, are sent as they are. transfer.Client
// follows redirects.
func (r *repository) transport(home *url.URL) http.RoundTripper {
	c := *r.Client.(*auth.Client)
	c.Client = &http.Client{Transport: r.base, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Scheme == home.Scheme && strings.EqualFold(req.URL.Host, home.Host) {
			return c.Do(req.WithContext(auth.AppendRepositoryScope(req.Context(), r.Reference, auth.ActionPull)))
		}
		return r.base.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

// artifactOf reads and checks an image manifest.
func (r *repository) artifact(ctx context.Context, d ocispec.Descriptor) ([]layer, error) {
	b, err := r.manifestBytes(ctx, d)
	if err != nil {
		return nil, err
	}
	return parseArtifact(b)
}

// manifestBytes reads the manifest of a descriptor and checks its digest.
func (r *repository) manifestBytes(ctx context.Context, d ocispec.Descriptor) (b []byte, err error) {
	if d.Size > maxManifest {
		return nil, fmt.Errorf("the manifest has %d bytes, the limit is %d: %w", d.Size, maxManifest, tensor.ErrCorrupt)
	}
	err = r.try(ctx, "read the manifest", func(ctx context.Context, touch func(int)) error {
		rc, err := r.Manifests().Fetch(ctx, d)
		if err != nil {
			return err
		}
		defer rc.Close()
		b, err = orascontent.ReadAll(transfer.Watch(rc, touch), d)
		if errors.Is(err, orascontent.ErrMismatchedDigest) || errors.Is(err, orascontent.ErrTrailingData) {
			return fmt.Errorf("the manifest does not match its digest: %w", tensor.ErrCorrupt)
		}
		return err
	})
	return b, err
}

// choose returns the chosen package of the release in an index, or the only model of an index of another program.
func (r *repository) choose(ctx context.Context, d ocispec.Descriptor, chooser place.Chooser) (*ocispec.Descriptor, error) {
	b, err := r.manifestBytes(ctx, d)
	if err != nil {
		return nil, err
	}
	h, models, err := parseIndex(b)
	if err != nil {
		return nil, err
	}
	if h == nil {
		if len(models) != 1 {
			return nil, fmt.Errorf("the index has %d models; name one by its digest: %w", len(models), tensor.ErrUnsupported)
		}
		return &models[0], nil
	}
	p, err := place.ChooseFrom(h, chooser)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(models, func(m ocispec.Descriptor) bool { return string(m.Digest) == p.At })
	if i < 0 {
		return nil, fmt.Errorf("the index has no entry for %.100s: %w", p.Name, tensor.ErrCorrupt)
	}
	return &models[i], nil
}

func (o *origin) String() string { return "oci://" + o.repo.at(o.desc) }

func (o *origin) Read(ctx context.Context, name string, limit int64) ([]byte, error) {
	d, ok := o.layers[name]
	if !ok {
		return nil, fmt.Errorf("the artifact has no %s: %w", name, fs.ErrNotExist)
	}
	if err := place.CheckSize(name, d.Size, limit); err != nil {
		return nil, err
	}
	blob := transfer.Blob{Size: d.Size, SHA256: d.Digest.Encoded()}
	b, err := transfer.ReadBlob(ctx, "read "+name, blob, o.blob(d), o.repo.patience)
	if errors.Is(err, tensor.ErrCorrupt) {
		return nil, fmt.Errorf("%s does not match the artifact: %w", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// Range implements Origin. It rejects artifacts whose layers differ from the package's manifest.
func (o *origin) Range(f manifest.File) transfer.Range {
	d, ok := o.layers[f.Name]
	if !ok || d.Size != f.Size || d.Digest.Encoded() != f.SHA256 {
		return func(context.Context, int64, int64) (io.ReadCloser, error) {
			return nil, fmt.Errorf("the artifact has %s with another size or digest than %s, or not at all: %w", f.Name, manifest.FileName, tensor.ErrCorrupt)
		}
	}
	return o.blob(d)
}

func (o *origin) blob(d ocispec.Descriptor) transfer.Range {
	return o.repo.blobAt(o.http, d)
}
