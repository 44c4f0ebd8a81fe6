package main

import (
	"archive/tar"
	"bytes"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// facts describe the program in the image.
type facts struct {
	version, revision string
	created           time.Time
	license           []byte
}

// binary is the program for one platform.
type binary struct {
	platform v1.Platform
	content  []byte
}

// user is the one that the program runs as unless docker run --user says otherwise: nobody in particular, and not root.
const user = 65532

// workDir is where users mount their directory. It is the home directory as well, so that the Hugging Face cache lies in it.
const workDir = "/work"

// index returns the image of all platforms.
func (f facts) index(binaries []binary) (v1.ImageIndex, error) {
	var parts []mutate.IndexAddendum
	for _, b := range binaries {
		image, err := f.image(b)
		if err != nil {
			return nil, err
		}
		d, err := describe(image, b.platform)
		if err != nil {
			return nil, err
		}
		parts = append(parts, mutate.IndexAddendum{Add: described{image, d}})
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), parts...)
	return mutate.Annotations(index, f.labels()).(v1.ImageIndex), nil
}

// described is an image with its own descriptor. The library would add the type of its configuration as an artifactType, which
// skopeo leaves out, and so change the digest of the index on its way to a registry.
type described struct {
	v1.Image
	descriptor v1.Descriptor
}

// Descriptor implements what partial.Descriptor looks for.
func (d described) Descriptor() (*v1.Descriptor, error) { return &d.descriptor, nil }

func describe(image v1.Image, p v1.Platform) (v1.Descriptor, error) {
	digest, err := image.Digest()
	if err != nil {
		return v1.Descriptor{}, err
	}
	size, err := image.Size()
	return v1.Descriptor{MediaType: types.OCIManifestSchema1, Size: size, Digest: digest, Platform: &p}, err
}

func (f facts) image(b binary) (v1.Image, error) {
	files, err := f.layer(b.content)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: f.created}, CreatedBy: "llmexport " + f.version},
	})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant = b.platform.OS, b.platform.Architecture, b.platform.Variant
	file.Created = v1.Time{Time: f.created}
	file.Config = v1.Config{
		Entrypoint: []string{"/llmexport"}, WorkingDir: workDir, User: "65532:65532",
		Env: []string{"PATH=/", "HOME=" + workDir}, Labels: f.labels(),
	}
	return mutate.ConfigFile(image, file)
}

// labels are annotations of the OCI image specification.
func (f facts) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":         "llmexport",
		"org.opencontainers.image.description":   "Turns Hugging Face checkpoints into packages for MNN",
		"org.opencontainers.image.source":        "https://github.com/llmexport/llmexport",
		"org.opencontainers.image.documentation": "https://github.com/llmexport/llmexport/blob/main/docs/install.md#container",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.version":       f.version,
		"org.opencontainers.image.created":       f.created.UTC().Format(time.RFC3339),
	}
	if f.revision != "" {
		labels["org.opencontainers.image.revision"] = f.revision
	}
	return labels
}

// layer returns the files of the image. The certificates of authorities are in the program.
func (f facts) layer(program []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, x := range []struct {
		tar.Header
		content []byte
	}{
		{tar.Header{Name: "etc/", Mode: 0o755, Typeflag: tar.TypeDir}, nil},
		{tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nllmexport:x:65532:\n")},
		{tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/:/\nllmexport:x:65532:65532::" + workDir + ":/\n")},
		{tar.Header{Name: "LICENSE", Mode: 0o644}, f.license},
		{tar.Header{Name: "llmexport", Mode: 0o755}, program},
		{tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}, nil},
		{tar.Header{Name: "work/", Mode: 0o755, Typeflag: tar.TypeDir, Uid: user, Gid: user}, nil},
	} {
		x.ModTime, x.Size, x.Format = f.created, int64(len(x.content)), tar.FormatPAX
		if err := w.WriteHeader(&x.Header); err != nil {
			return nil, err
		}
		if _, err := w.Write(x.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
