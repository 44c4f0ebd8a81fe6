package oci

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// shelfAt is the repository of a reference that ends in a tag.
func shelfAt(ctx context.Context, ref func(tag string) string) placetest.Shelf {
	return placetest.Shelf{
		Ctx:   ctx,
		Store: func(version string) place.Store { return Place{Ref: ref(":" + version), Transfer: placetest.Quick} },
		Open: func(ctx context.Context, name string, o place.OpenOptions) (place.Origin, error) {
			o.Transfer = placetest.Quick
			if name == "latest" {
				return Open(ctx, ref(""), o) // the default tag
			}
			return Open(ctx, ref("@"+name), o)
		},
	}
}

func TestShelfOCI(t *testing.T) {
	s := placetest.NewOCI(t)
	story := shelfAt(t.Context(), s.Ref)
	story.Run(t)
	t.Run("collision", story.Collision)
	t.Run("annotations", func(t *testing.T) { testAnnotations(t, s.Ref) })

	// A tag that is a package is neither a channel nor overwritten.
	on, _, err := Place{Ref: s.Ref(":x"), Transfer: placetest.Quick}.Shelf()
	if err != nil {
		t.Fatal(err)
	}
	err = on.Update(t.Context(), "one", func(h channel.History) (channel.History, error) { return h, nil })
	if ready := on.Ready(t.Context(), "one"); err == nil || ready == nil || !strings.Contains(err.Error(), "the tag one names something other than a channel") {
		t.Errorf("%v, %v", err, ready)
	}

	// A mover that another one overtakes after its last look loses nothing if it looks again.
	p := Place{Ref: s.Ref(":late"), Transfer: placetest.Quick}
	r, err := place.To(t.Context(), p, placetest.Package(t, "late"))
	if err != nil {
		t.Fatal(err)
	}
	slow := on.(*shelf)
	own := channel.Package{Name: "own", Digest: r.Digest, At: on.At(r)}
	other := own
	other.Name = "other"
	beaten := 0
	slow.pushed = func() {
		if beaten++; beaten == 1 {
			fast, err := OpenShelf(s.Ref(""), place.OpenOptions{Transfer: placetest.Quick})
			if err != nil {
				t.Fatal(err)
			}
			err = fast.Update(t.Context(), "raced", placetest.Contended(t, fast, "raced", other, other))
			if err != nil {
				t.Error(err)
			}
		}
	}
	if err := slow.Update(t.Context(), "raced", func(h channel.History) (channel.History, error) {
		h, _ = h.Move(time.Now(), []channel.Package{own})
		return h, nil
	}); err != nil {
		t.Fatal(err)
	}
	h, err := slow.History(t.Context(), "raced")
	if now, _ := h.Current(); err != nil || len(now.Packages) != 2 || beaten != 2 {
		t.Errorf("%+v after %d tries, %v", now, beaten, err)
	}

	for _, ref := range []string{s.Ref(":one"), s.Ref("@sha256:" + strings.Repeat("0", 64))} {
		if _, err := OpenShelf(ref, place.OpenOptions{}); !errors.As(err, new(*place.RefError)) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// testAnnotations: other programs find the packages of a channel, and what was measured of them, in the index.
func testAnnotations(t *testing.T, ref func(tag string) string) {
	p := Place{Ref: ref(":noted"), Transfer: placetest.Quick}
	r, err := place.To(t.Context(), p, placetest.Package(t, "noted"))
	if err != nil {
		t.Fatal(err)
	}
	on, _, err := p.Shelf()
	if err != nil {
		t.Fatal(err)
	}
	kl := .0125
	noted := channel.Package{Name: "tiny", Digest: r.Digest, At: on.At(r), Facts: channel.Facts{Bytes: 7, DeviceBytes: 8, Bits: 4.5, KL: &kl,
		Engine: "3.6.0", Backends: []string{"cpu", "opencl"}, Verified: true}}
	if err := on.Update(t.Context(), "noted-channel", func(h channel.History) (channel.History, error) {
		h, _ = h.Move(time.Now(), []channel.Package{noted})
		return h, nil
	}); err != nil {
		t.Fatal(err)
	}
	repo := on.(*shelf).repo
	d, err := repo.resolve(t.Context(), "noted-channel")
	if err != nil || d == nil {
		t.Fatal(d, err)
	}
	b, err := repo.manifestBytes(t.Context(), *d)
	if err != nil {
		t.Fatal(err)
	}
	_, models, err := parseIndex(b)
	if err != nil || len(models) != 1 || string(models[0].Digest) != noted.At || models[0].Size == 0 {
		t.Fatalf("%+v, %v", models, err)
	}
	for key, want := range map[string]string{ocispec.AnnotationTitle: "tiny", packageDigest: string(r.Digest), packageBytes: "7", packageMemory: "8",
		packageBits: "4.5", packageKL: "0.0125", packageEngine: "3.6.0", packageBackends: "cpu,opencl", packageVerified: "true"} {
		if got := models[0].Annotations[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// FuzzChannel: no index panics, and the packages of a channel that is accepted are in it.
func FuzzChannel(f *testing.F) {
	h, _ := channel.History{}.Move(time.Unix(1, 0), []channel.Package{{Name: "a", Digest: digest.Of(nil), At: string(digest.Of([]byte("a")))}})
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: ocidigest.FromString("a"), Size: 3}
	good, err := newIndex("stable", h, []ocispec.Descriptor{d})
	if err != nil {
		f.Fatal(err)
	}
	if got, models, err := parseIndex(good); err != nil || !got.Equal(h) || len(models) != 1 {
		f.Fatal(got, models, err)
	}
	foreign := `{"schemaVersion":2,"manifests":[]}`
	empty := strings.Replace(string(good), `"manifests":[{`, `"manifests":[],"x":[{`, 1)
	if _, _, err := parseIndex([]byte(empty)); !errors.Is(err, tensor.ErrCorrupt) {
		f.Fatalf("an index without the package of its history: %v", err)
	}
	for _, s := range []string{string(good), foreign, empty, `{"artifactType":"` + channelType + `"}`, `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, models, err := parseIndex(b)
		if err != nil {
			if h != nil || models != nil || !errors.Is(err, tensor.ErrCorrupt) {
				t.Fatal(h, models, err)
			}
			return
		}
		now, _ := h.Current()
		if len(now.Packages) > 0 && len(models) == 0 {
			t.Fatal("a release without models")
		}
		if h != nil {
			if _, err := h.Marshal(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
