package oci

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	ocidigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Media types and annotations of ModelPack, and the annotation with the digest of manifest.json.
const (
	artifactType     = "application/vnd.cncf.model.manifest.v1+json"
	configType       = "application/vnd.cncf.model.config.v1+json"
	weightsType      = "application/vnd.cncf.model.weight.v1.raw"
	weightConfigType = "application/vnd.cncf.model.weight.config.v1.raw"
	documentType     = "application/vnd.cncf.model.doc.v1.raw"
	signatureType    = "application/vnd.dev.sigstore.bundle.v0.3+json"
	filePath         = "org.cncf.model.filepath"
	packageDigest    = "io.github.llmexport.package.digest"
)

// maxLayers bounds the files of an artifact; packages have about twenty.
const maxLayers = 10_000

// layer is a file as a blob.
type layer struct {
	place.Cargo
	desc ocispec.Descriptor
}

// artifactOf is a package as an OCI artifact.
type artifact struct {
	config layer
	layers []layer // sorted by name
	json   []byte  // the image manifest
	desc   ocispec.Descriptor
}

// blobs are all blobs except the image manifest.
func (a *artifact) blobs() []layer { return append(slices.Clone(a.layers), a.config) }

// modelConfig is the configuration of ModelPack, with the fields that a package provides.
type modelConfig struct {
	Descriptor struct {
		Name      string `json:"name,omitempty"`
		Version   string `json:"version,omitempty"`
		SourceURL string `json:"sourceURL,omitempty"`
		Revision  string `json:"revision,omitempty"`
	} `json:"descriptor"`
	Config struct {
		Architecture string `json:"architecture,omitempty"`
		Format       string `json:"format,omitempty"`
	} `json:"config"`
	ModelFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diffIds"`
	} `json:"modelfs"`
}

// newArtifact describes the package of a manifest and a digest, which consists of files; the same package gives the
// same bytes.
func newArtifact(m *manifest.Manifest, sum digest.Digest, files []place.Cargo) (*artifact, error) {
	a := &artifact{}
	for _, f := range files {
		a.layers = append(a.layers, layerOf(f))
	}
	slices.SortFunc(a.layers, func(x, y layer) int { return strings.Compare(x.Name, y.Name) })

	var c modelConfig
	c.Descriptor.Name = m.Name
	c.Descriptor.Revision = m.Source.Revision
	c.Descriptor.SourceURL = m.Source.Page()
	c.Config.Architecture, c.Config.Format = "transformer", "mnn"
	c.ModelFS.Type = "layers"
	for _, l := range a.layers {
		c.ModelFS.DiffIDs = append(c.ModelFS.DiffIDs, string(l.desc.Digest))
	}
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	a.config = layer{place.Loaded("config of the artifact", config),
		ocispec.Descriptor{MediaType: configType, Digest: ocidigest.FromBytes(config), Size: int64(len(config))}}

	image := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifactType, Config: a.config.desc,
		Annotations: map[string]string{ocispec.AnnotationTitle: m.Name, packageDigest: string(sum)},
	}
	if c.Descriptor.SourceURL != "" {
		image.Annotations[ocispec.AnnotationSource] = c.Descriptor.SourceURL
		image.Annotations[ocispec.AnnotationRevision] = c.Descriptor.Revision
	}
	for _, l := range a.layers {
		image.Layers = append(image.Layers, l.desc)
	}
	if a.json, err = json.Marshal(image); err != nil {
		return nil, err
	}
	a.desc = ocispec.Descriptor{MediaType: image.MediaType, ArtifactType: image.ArtifactType, Digest: ocidigest.FromBytes(a.json), Size: int64(len(a.json))}
	return a, nil
}

func layerOf(f place.Cargo) layer {
	kind := weightConfigType
	switch low := strings.ToLower(path.Base(f.Name)); {
	case f.Name == manifest.SignatureName:
		kind = signatureType
	case about.IsLicense(low), strings.HasSuffix(low, ".md"):
		kind = documentType
	case f.Role == manifest.RoleWeights, f.Role == manifest.RoleGraph, strings.HasSuffix(low, ".weight"), strings.HasSuffix(low, ".mnn"),
		strings.HasSuffix(low, ".bin"):
		kind = weightsType
	}
	return layer{f, ocispec.Descriptor{
		MediaType: kind, Digest: ocidigest.NewDigestFromEncoded(ocidigest.SHA256, f.SHA256), Size: f.Size,
		Annotations: map[string]string{filePath: f.Name, ocispec.AnnotationTitle: f.Name},
	}}
}

// parseArtifact parses an image manifest as [newArtifact] writes it: one raw layer for each file, including
// manifest.json, and one for the signature if there is one.
func parseArtifact(b []byte) ([]layer, error) {
	var m ocispec.Manifest
	if err := jsondoc.Decode(b, &m); err != nil {
		return nil, fmt.Errorf("the artifact's manifest: %w: %w", err, tensor.ErrCorrupt)
	}
	if m.MediaType != ocispec.MediaTypeImageManifest || m.ArtifactType != artifactType {
		return nil, fmt.Errorf("the artifact is of type %.100q, not a model: %w", m.ArtifactType, tensor.ErrUnsupported)
	}
	if len(m.Layers) > maxLayers {
		return nil, fmt.Errorf("the artifact has %d layers, the limit is %d: %w", len(m.Layers), maxLayers, tensor.ErrCorrupt)
	}
	var layers []layer
	seen := map[string]bool{}
	for _, d := range m.Layers {
		name := d.Annotations[filePath]
		if name == "" {
			name = d.Annotations[ocispec.AnnotationTitle]
		}
		if err := manifest.CheckName(name); err != nil && name != manifest.FileName {
			return nil, fmt.Errorf("the artifact has a layer %.200q: %w", name, err)
		}
		raw := strings.HasSuffix(d.MediaType, ".raw") || name == manifest.SignatureName && d.MediaType == signatureType
		if !raw || d.Size < 0 || d.Digest.Validate() != nil || d.Digest.Algorithm() != ocidigest.SHA256 || seen[name] {
			return nil, fmt.Errorf("the artifact's layer %s is not one file with a SHA-256 digest: %w", name, tensor.ErrUnsupported)
		}
		seen[name] = true
		layers = append(layers, layer{place.Cargo{File: manifest.File{Name: name, Size: d.Size, SHA256: d.Digest.Encoded()}}, d})
	}
	if !seen[manifest.FileName] {
		return nil, fmt.Errorf("the artifact has no %s: %w", manifest.FileName, tensor.ErrUnsupported)
	}
	return layers, nil
}
