package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"time"

	ocidigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/llmexport/llmexport/internal/blob"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Types of the artifacts of a shared store.
const (
	textArtifact = "application/vnd.llmexport.store.v1+json"
	textType     = "application/vnd.llmexport.store.text.v1+json"
	textBlobType = "application/octet-stream"
)

// Blobs is a [blob.Store] in a repository of a registry. A text is an artifact: its tag is the name, its config the text, and its
// layers are the blobs that the text is about, which keeps the registry from collecting them. Registries collect what no tag
// names themselves. Not all of them support deleting.
type Blobs struct {
	repo *repository
	http *transfer.Client
}

// OpenBlobs opens registry/repository; it sends nothing.
func OpenBlobs(ref string, o transfer.Options) (*Blobs, error) {
	r, err := openRepo(ref, o)
	if err != nil {
		return nil, err
	}
	if r.Reference.Reference != "" {
		return nil, &place.RefError{Err: fmt.Errorf("oci://%.300s: a shared store is a whole repository, without a tag or digest", ref)}
	}
	return &Blobs{repo: r, http: r.downloads()}, nil
}

// String implements blob.Store.
func (b *Blobs) String() string {
	return "oci://" + b.repo.Reference.Registry + "/" + b.repo.Reference.Repository
}

// described returns the descriptor of a blob.
func described(x transfer.Blob) (ocispec.Descriptor, error) {
	if err := blob.CheckSum(x.SHA256); err != nil {
		return ocispec.Descriptor{}, err
	}
	sum := ocidigest.NewDigestFromEncoded(ocidigest.SHA256, x.SHA256)
	return ocispec.Descriptor{MediaType: textBlobType, Digest: sum, Size: x.Size}, nil
}

// Range implements blob.Store.
func (b *Blobs) Range(x transfer.Blob) transfer.Range {
	d, err := described(x)
	if err != nil {
		return func(context.Context, int64, int64) (io.ReadCloser, error) { return nil, err }
	}
	return b.repo.blobAt(b.http, d)
}

// Has implements blob.Store.
func (b *Blobs) Has(ctx context.Context, x transfer.Blob) (found bool, err error) {
	d, err := described(x)
	if err != nil {
		return false, err
	}
	err = b.repo.try(ctx, "look for a blob", func(ctx context.Context, _ func(int)) error {
		there, err := b.repo.Blobs().Resolve(ctx, string(d.Digest))
		if found = err == nil && there.Size == d.Size; errors.Is(err, errdef.ErrNotFound) {
			err = nil
		}
		return err
	})
	return found, err
}

// Put implements blob.Store. The registry compares the digest, too.
func (b *Blobs) Put(ctx context.Context, x transfer.Blob, content io.ReaderAt) error {
	d, err := described(x)
	if err != nil {
		return err
	}
	name := place.Cargo{File: manifest.File{Name: "a blob", Size: x.Size, SHA256: x.SHA256}}
	return b.repo.uploadFrom(ctx, layer{name, d}, content)
}

// Text implements blob.Store.
func (b *Blobs) Text(ctx context.Context, name string, limit int64) ([]byte, error) {
	m, err := b.image(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := place.CheckSize(name, m.Config.Size, limit); err != nil {
		return nil, err
	}
	return transfer.ReadBlob(ctx, "read "+name, transfer.Blob{Size: m.Config.Size, SHA256: m.Config.Digest.Encoded()},
		b.repo.blobAt(b.http, m.Config), b.repo.patience)
}

// image reads the artifact of a name.
func (b *Blobs) image(ctx context.Context, name string) (*ocispec.Manifest, error) {
	if err := blob.CheckName(name); err != nil {
		return nil, err
	}
	d, err := b.repo.resolve(ctx, name)
	if err == nil && d == nil {
		err = fmt.Errorf("the repository has no %s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	text, err := b.repo.manifestBytes(ctx, *d)
	if err != nil {
		return nil, err
	}
	return parseText(text)
}

// parseText parses the manifest of a text's artifact.
func parseText(b []byte) (*ocispec.Manifest, error) {
	m := &ocispec.Manifest{}
	if err := jsondoc.Decode(b, m); err != nil {
		return nil, fmt.Errorf("%w: %w", err, tensor.ErrCorrupt)
	}
	c := m.Config
	if m.ArtifactType != textArtifact || c.Size < 0 || c.Digest.Validate() != nil || c.Digest.Algorithm() != ocidigest.SHA256 {
		return nil, fmt.Errorf("the artifact is of type %.100q, not one of the shared store: %w", m.ArtifactType, tensor.ErrCorrupt)
	}
	return m, nil
}

// SetText implements blob.Store.
func (b *Blobs) SetText(ctx context.Context, name string, text []byte, about []transfer.Blob) error {
	if err := blob.CheckName(name); err != nil {
		return err
	}
	config := place.Loaded(name, text)
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: textArtifact,
		Config: ocispec.Descriptor{MediaType: textType, Digest: ocidigest.FromBytes(text), Size: int64(len(text))},
		Layers: []ocispec.Descriptor{}, Annotations: map[string]string{ocispec.AnnotationCreated: time.Now().UTC().Format(time.RFC3339)},
	}
	for _, x := range about {
		d, err := described(x)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(m.Layers, func(l ocispec.Descriptor) bool { return l.Digest == d.Digest }) {
			m.Layers = append(m.Layers, d)
		}
	}
	manifest, err := json.Marshal(m)
	if err == nil && len(manifest) > maxManifest {
		err = fmt.Errorf("%s has %d files, more than a registry takes: %w", name, len(about), tensor.ErrUnsupported)
	}
	if err != nil {
		return err
	}
	if err := b.repo.upload(ctx, layer{config, m.Config}); err != nil {
		return err
	}
	d := ocispec.Descriptor{MediaType: m.MediaType, ArtifactType: m.ArtifactType,
		Digest: ocidigest.FromBytes(manifest), Size: int64(len(manifest))}
	return b.repo.pushManifest(ctx, d, manifest, name)
}

// RemoveText implements blob.Store.
func (b *Blobs) RemoveText(ctx context.Context, name string) error {
	if err := blob.CheckName(name); err != nil {
		return err
	}
	d, err := b.repo.resolve(ctx, name)
	if err != nil || d == nil {
		return err
	}
	err = b.repo.try(ctx, "delete "+name, func(ctx context.Context, _ func(int)) error { return b.repo.Manifests().Delete(ctx, *d) })
	refused := (*transfer.StatusError)(nil)
	if errors.As(err, &refused) && (refused.Status == http.StatusMethodNotAllowed || refused.Status == http.StatusBadRequest) {
		return fmt.Errorf("the registry does not support deleting: %w", err)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errdef.ErrNotFound) {
		return err
	}
	// Most registries remove the tags of deleted artifacts.
	if now, err := b.repo.resolve(ctx, name); err != nil || now == nil {
		return err
	}
	return b.repo.deleteTag(ctx, name)
}

// Texts implements blob.Store. It reads the artifact of every name, because registries do not list times.
func (b *Blobs) Texts(ctx context.Context) ([]blob.Info, error) {
	var names []string
	err := b.repo.try(ctx, "list tags", func(ctx context.Context, touch func(int)) error {
		names = nil
		return b.repo.Tags(ctx, "", func(tags []string) error {
			for _, t := range tags {
				touch(len(t))
				if blob.CheckName(t) == nil {
					names = append(names, t)
				}
			}
			return nil
		})
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errdef.ErrNotFound) {
		return nil, nil // a repository begins with its first push
	}
	if err != nil {
		return nil, err
	}
	list := make([]blob.Info, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, name := range names {
		g.Go(func() error {
			m, err := b.image(ctx, name)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tensor.ErrCorrupt) {
				return nil // removed meanwhile, or not ours
			}
			if err != nil {
				return err
			}
			set, _ := time.Parse(time.RFC3339, m.Annotations[ocispec.AnnotationCreated]) // else long ago
			list[i] = blob.Info{Name: name, Time: set}
			return nil
		})
	}
	err = g.Wait()
	return slices.DeleteFunc(list, func(x blob.Info) bool { return x.Name == "" }), err
}
