package publish

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/dir"
	"github.com/llmexport/llmexport/publish/hubs"
	"github.com/llmexport/llmexport/publish/oci"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/s3"
)

// kind is a kind of place that packages are published to and pulled from.
type kind struct {
	key     string   // key of an entry in a recipe
	options []string // keys that an entry of this kind may have in addition to the common ones
	doc     string
	ref     func(t Target) string // "" if the entry is of another kind
	open    func(t Target, baseDir string) (place.Store, error)
	scheme  string                             // of references, without the colon
	form    string                             // syntax of references
	place   func(rest string, t *Target) error // fills the entry of a reference without its scheme
	// origin opens the package at rest, the reference without its scheme, and fixes its state.
	origin func(ctx context.Context, rest string, o place.OpenOptions) (place.Origin, error)
	// shelf opens the shelf at rest; nil if the kind has no channels.
	shelf func(rest string, o place.OpenOptions) (place.Shelf, error)
	keeps bool // a commit cannot be undone
}

// common lists the options of all kinds.
var common = []string{"license_ack"}

// kinds lists every kind of place, sorted by key. A reference without a scheme is a directory.
var kinds = []kind{
	{
		key:     "dir",
		options: []string{"replace", "channel"},
		doc:     "a directory of this machine",
		ref:     func(t Target) string { return t.Dir },
		open: func(t Target, baseDir string) (place.Store, error) {
			path := filepath.FromSlash(t.Dir)
			if !filepath.IsAbs(path) {
				path = filepath.Join(baseDir, path)
			}
			return dir.Place{Path: path, Replace: t.Replace}, nil
		},
		scheme: "dir",
		form:   "a directory (PATH or dir:PATH, PATH@CHANNEL)",
		place:  placeDir,
		origin: dir.Open,
		shelf:  dir.OpenShelf,
	},
	{
		key:     "hub",
		options: []string{"private", "gated", "branch", "tag", "endpoint", "message", "channel"},
		doc:     "a repository of Hugging Face",
		ref:     func(t Target) string { return t.Hub },
		open: func(t Target, _ string) (place.Store, error) {
			h := hubs.HuggingFace{Repo: t.Hub, Private: t.Private, Gated: t.Gated, Branch: t.Branch, Tag: t.Tag, Endpoint: t.Endpoint, Message: t.Message}
			return h, h.Check()
		},
		scheme: "hf",
		form:   "hf://ORG/NAME[@REVISION or @CHANNEL]",
		place: func(rest string, t *Target) error {
			var err error
			t.Hub, t.Branch, err = splitBranch(rest)
			return err
		},
		origin: hubs.OpenHuggingFace,
		shelf:  hubs.OpenShelf,
		keeps:  true,
	},
	{
		key:     "modelscope",
		options: []string{"private", "branch", "tag", "endpoint", "message"},
		doc:     "a repository of ModelScope",
		ref:     func(t Target) string { return t.ModelScope },
		open: func(t Target, _ string) (place.Store, error) {
			m := hubs.ModelScope{Repo: t.ModelScope, Private: t.Private, Branch: t.Branch, Tag: t.Tag, Endpoint: t.Endpoint, Message: t.Message}
			return m, m.Check()
		},
		scheme: "ms",
		form:   "ms://ORG/NAME[@REVISION]",
		place: func(rest string, t *Target) error {
			var err error
			t.ModelScope, t.Branch, err = splitBranch(rest)
			return err
		},
		origin: hubs.OpenModelScope,
		keeps:  true,
	},
	{
		key:     "oci",
		options: []string{"replace", "private", "channel"},
		doc:     "a tag of an OCI registry",
		ref:     func(t Target) string { return t.OCI },
		open: func(t Target, _ string) (place.Store, error) {
			o := oci.Place{Ref: t.OCI, Replace: t.Replace, Private: t.Private}
			if t.Channel != "" && strings.HasSuffix(t.OCI, ":"+t.Channel) {
				return o, fmt.Errorf("channel: the tag %s is the channel's own; the package needs another tag, such as {commit:8}", t.Channel)
			}
			return o, o.Check()
		},
		scheme: "oci",
		form:   "oci://REGISTRY/REPOSITORY:TAG, @CHANNEL or @DIGEST",
		place:  func(rest string, t *Target) error { t.OCI = rest; return nil },
		origin: oci.Open,
		shelf:  oci.OpenShelf,
	},
	{
		key:     "s3",
		options: []string{"replace", "private", "endpoint", "region", "channel"},
		doc:     "a prefix of a bucket in an S3-compatible store",
		ref:     func(t Target) string { return t.S3 },
		open: func(t Target, _ string) (place.Store, error) {
			s := s3.Place{Ref: t.S3, Endpoint: t.Endpoint, Region: t.Region, Replace: t.Replace, Private: t.Private}
			return s, s.Check()
		},
		scheme: "s3",
		form:   "s3://BUCKET/PREFIX[@CHANNEL]",
		place:  placeS3,
		origin: s3.Open,
		shelf:  s3.OpenShelf,
	},
}

// New opens the store that a publish entry names. Relative directories start at baseDir. Nothing is read or sent yet.
func New(t Target, baseDir string) (place.Store, error) {
	var named []kind
	var known []string
	for _, k := range kinds {
		known = append(known, fmt.Sprintf("%s (%s)", k.key, k.doc))
		if k.ref(t) != "" {
			named = append(named, k)
		}
	}
	if len(named) != 1 {
		return nil, fmt.Errorf("a publish entry must name one place, not %d; the kinds are %s", len(named), strings.Join(known, ", "))
	}
	set, err := t.fields()
	if err != nil {
		return nil, err
	}
	for key := range set {
		if key != named[0].key && !slices.Contains(named[0].options, key) && !slices.Contains(common, key) {
			return nil, fmt.Errorf("%s: not an option of %s", key, named[0].key)
		}
	}
	if t.Channel != "" {
		if err := channel.CheckName(t.Channel); err != nil {
			return nil, fmt.Errorf("channel: %w", err)
		}
	}
	return named[0].open(t, baseDir)
}
