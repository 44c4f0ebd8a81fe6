package oci

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// A channel is a tag of an image index. Its entries are the packages of the current release, with annotations for other
// programs; an annotation of the index has the history of the channel, as [channel.History.Marshal] writes it.
const (
	channelType     = "application/vnd.llmexport.channel.v1+json"
	channelHistory  = "io.github.llmexport.channel.history"
	packageBytes    = "io.github.llmexport.package.bytes"
	packageMemory   = "io.github.llmexport.package.device-bytes"
	packageBits     = "io.github.llmexport.package.bits"
	packageKL       = "io.github.llmexport.package.kl"
	packageEngine   = "io.github.llmexport.package.engine"
	packageBackends = "io.github.llmexport.package.backends"
	packageVerified = "io.github.llmexport.package.verified"
)

// newIndex returns the index of a channel. The descriptors are those of the packages of the current release, in its order;
// the same history gives the same bytes.
func newIndex(name string, h channel.History, artifacts []ocispec.Descriptor) ([]byte, error) {
	text, err := h.Marshal()
	if err != nil {
		return nil, err
	}
	index := ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, ArtifactType: channelType,
		Manifests:   []ocispec.Descriptor{},
		Annotations: map[string]string{ocispec.AnnotationTitle: name, channelHistory: string(text)},
	}
	now, _ := h.Current()
	for i, d := range artifacts {
		index.Manifests = append(index.Manifests, ocispec.Descriptor{
			MediaType: d.MediaType, ArtifactType: artifactType, Digest: d.Digest, Size: d.Size, Annotations: annotations(now.Packages[i]),
		})
	}
	b, err := json.Marshal(index)
	if err == nil && len(b) > maxManifest {
		err = fmt.Errorf("the index of the channel would have %d bytes, the limit is %d", len(b), maxManifest)
	}
	return b, err
}

// annotations are what is known of a package. Numbers that are unknown are absent.
func annotations(p channel.Package) map[string]string {
	a := map[string]string{
		ocispec.AnnotationTitle: p.Name, packageDigest: string(p.Digest), packageBytes: strconv.FormatInt(p.Bytes, 10),
		packageVerified: strconv.FormatBool(p.Verified),
	}
	if p.DeviceBytes > 0 {
		a[packageMemory] = strconv.FormatInt(p.DeviceBytes, 10)
	}
	if p.Bits > 0 {
		a[packageBits] = strconv.FormatFloat(p.Bits, 'g', -1, 64)
	}
	if p.KL != nil {
		a[packageKL] = strconv.FormatFloat(*p.KL, 'g', -1, 64)
	}
	if p.Engine != "" {
		a[packageEngine] = p.Engine
	}
	if len(p.Backends) > 0 {
		a[packageBackends] = strings.Join(p.Backends, ",")
	}
	return a
}

// parseIndex reads an image index: the history of the channel, nil for an index of another program, and the models in it.
func parseIndex(b []byte) (channel.History, []ocispec.Descriptor, error) {
	var index ocispec.Index
	if err := jsondoc.Decode(b, &index); err != nil {
		return nil, nil, fmt.Errorf("the index: %w: %w", err, tensor.ErrCorrupt)
	}
	var models []ocispec.Descriptor
	for _, m := range index.Manifests {
		if m.ArtifactType == artifactType && m.Size >= 0 && m.Digest.Validate() == nil {
			models = append(models, m)
		}
	}
	if index.ArtifactType != channelType {
		return nil, models, nil
	}
	h, err := channel.ParseHistory([]byte(index.Annotations[channelHistory]))
	if err != nil {
		return nil, nil, fmt.Errorf("the index: %w", err)
	}
	now, _ := h.Current()
	for _, p := range now.Packages {
		if !slices.ContainsFunc(models, func(m ocispec.Descriptor) bool { return string(m.Digest) == p.At }) {
			return nil, nil, fmt.Errorf("the index has no entry for %.100s, which its history names: %w", p.Name, tensor.ErrCorrupt)
		}
	}
	return h, models, nil
}
