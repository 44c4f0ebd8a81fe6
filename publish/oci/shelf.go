package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// shelf is a repository of a registry, whose channels are tags; see [newIndex]. Registries have no compare and swap. The tag
// is read again before and after every push, so that only a push between the first of these and ours can be lost.
type shelf struct {
	repo *repository

	pushed func() // called before every push; tests move the channel meanwhile
}

// Shelf returns the repository that the tag is in.
func (o Place) Shelf() (place.Shelf, string, error) {
	r, err := parse(o.Ref)
	if err != nil {
		return nil, "", err
	}
	s, err := OpenShelf(r.Registry+"/"+r.Repository, place.OpenOptions{Transfer: o.Transfer})
	return s, "", err
}

// OpenShelf returns registry/repository as a shelf.
func OpenShelf(ref string, o place.OpenOptions) (place.Shelf, error) {
	repo, err := openRepo(ref, o.Transfer)
	if err != nil {
		return nil, err
	}
	if repo.Reference.Reference != "" {
		whole := repo.Reference.Registry + "/" + repo.Reference.Repository
		return nil, &place.RefError{Err: fmt.Errorf("%.300q names an artifact; channels belong to oci://%s", ref, whole)}
	}
	return &shelf{repo: repo}, nil
}

func (s *shelf) String() string {
	return "oci://" + s.repo.Reference.Registry + "/" + s.repo.Reference.Repository
}

// maxTags bounds the tags that Channels looks at.
const maxTags = 10_000

// Channels looks at every tag of the repository.
func (s *shelf) Channels(ctx context.Context) (names []string, err error) {
	var tags []string
	err = s.repo.try(ctx, "list tags", func(ctx context.Context, _ func(int)) error {
		tags = nil
		return s.repo.Tags(ctx, "", func(page []string) error {
			tags = append(tags, page...)
			if len(tags) > maxTags {
				return fmt.Errorf("the repository has more than %d tags", maxTags)
			}
			return nil
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, tag := range tags {
		if err != nil {
			return nil, err
		}
		if channel.CheckName(tag) != nil {
			continue
		}
		var h channel.History
		if h, _, err = s.read(ctx, tag); h != nil {
			names = append(names, tag)
		}
	}
	slices.Sort(names)
	return names, err
}

// read returns the history of a channel and what its tag names; the history is nil if the tag names something else.
func (s *shelf) read(ctx context.Context, name string) (channel.History, *ocispec.Descriptor, error) {
	d, err := s.repo.resolve(ctx, name)
	if err != nil || d == nil || d.MediaType != ocispec.MediaTypeImageIndex {
		return nil, d, err
	}
	b, err := s.repo.manifestBytes(ctx, *d)
	if err != nil {
		return nil, nil, err
	}
	h, _, err := parseIndex(b)
	return h, d, err
}

func (s *shelf) History(ctx context.Context, name string) (channel.History, error) {
	h, _, err := s.read(ctx, name)
	return h, err
}

func (s *shelf) Ready(ctx context.Context, name string) error {
	h, d, err := s.read(ctx, name)
	if err == nil && d != nil && h == nil {
		err = fmt.Errorf("the tag %s names something other than a channel, %s; choose another name for the channel", name, d.Digest)
	}
	return err
}

func (s *shelf) Update(ctx context.Context, name string, change func(channel.History) (channel.History, error)) error {
	return place.Collide(ctx, func() error {
		was, before, err := s.read(ctx, name)
		if err != nil {
			return err
		}
		if before != nil && was == nil {
			return s.Ready(ctx, name)
		}
		next, err := change(was)
		if err != nil || next.Equal(was) {
			return err
		}
		b, err := s.index(ctx, name, next)
		if err != nil {
			return err
		}
		if s.pushed != nil {
			s.pushed()
		}
		now, err := s.repo.resolve(ctx, name)
		if err != nil {
			return err
		}
		if digestOf(now) != digestOf(before) {
			return place.ErrCollision
		}
		d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: ocidigest.FromBytes(b), Size: int64(len(b))}
		if err := s.repo.pushManifest(ctx, d, b, name); err != nil {
			return err
		}
		if now, err = s.repo.resolve(ctx, name); err != nil {
			return err
		}
		if digestOf(now) != string(d.Digest) {
			return place.ErrCollision // another writer may not have read ours
		}
		return nil
	})
}

// index returns the index of a history whose packages are all in the repository.
func (s *shelf) index(ctx context.Context, name string, h channel.History) ([]byte, error) {
	now, ok := h.Current()
	if !ok {
		return nil, errors.New("the channel names nothing")
	}
	var list []ocispec.Descriptor
	for _, p := range now.Packages {
		d, err := s.repo.resolve(ctx, p.At)
		if err == nil && (d == nil || string(d.Digest) != p.At) {
			err = fmt.Errorf("%s is no longer there: %w", p.At, fs.ErrNotExist)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		list = append(list, *d)
	}
	return newIndex(name, h, list)
}

func (s *shelf) At(r place.Receipt) string {
	_, at, _ := strings.Cut(r.Ref, "@")
	return at
}

func (s *shelf) Open(ctx context.Context, p channel.Package, o place.OpenOptions) (place.Origin, error) {
	if _, err := digest.Parse(p.At); err != nil {
		return nil, fmt.Errorf("%.80q does not name an artifact: %w", p.At, tensor.ErrCorrupt)
	}
	return Open(ctx, s.repo.Reference.Registry+"/"+s.repo.Reference.Repository+"@"+p.At, o)
}
