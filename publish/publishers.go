package publish

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Target is one entry of a recipe's publish list. Exactly one kind of place is given, with options that the kind has.
type Target struct {
	// Dir is a directory of this machine; a relative one is relative to the recipe.
	Dir string `json:"dir,omitempty" jsonschema_description:"Directory of this machine, relative to the recipe."`
	// Hub is a repository of Hugging Face, "org/name".
	Hub string `json:"hub,omitempty" jsonschema_description:"Repository of Hugging Face, org/name."`
	// ModelScope is a repository of ModelScope, "org/name".
	ModelScope string `json:"modelscope,omitempty" jsonschema_description:"Repository of ModelScope, org/name."`
	// OCI is a tag of an OCI registry, as registry/repository:tag.
	OCI string `json:"oci,omitempty" jsonschema_description:"Tag of an OCI registry such as ghcr.io/org/name:int4."`
	// S3 is a prefix of a bucket, as s3://bucket/prefix.
	S3 string `json:"s3,omitempty" jsonschema_description:"Prefix of a bucket in an S3-compatible store such as s3://bucket/prefix."`
	// Private says that not everyone may read the place. A new repository is made so; one that is public is an error.
	Private bool `json:"private,omitempty" jsonschema_description:"Not everyone may read the place."`
	// Gated is "auto" or "manual".
	Gated string `json:"gated,omitempty" jsonschema:"enum=auto,enum=manual" jsonschema_description:"Readers accept terms first, and are let in by themselves or by hand."`
	// Branch and Tag are those of a repository.
	Branch string `json:"branch,omitempty" jsonschema_description:"Branch that is committed to; main by default, and made from main if there is none."`
	Tag    string `json:"tag,omitempty" jsonschema_description:"Tag of the commit; one that is there is never moved."`
	// Endpoint is the address of the service. A hub's is the one of the environment: its token goes nowhere else.
	Endpoint string `json:"endpoint,omitempty" jsonschema_description:"Base URL of the store or hub if it is not the usual one."`
	// Region is that of a bucket.
	Region string `json:"region,omitempty" jsonschema_description:"Region of the bucket."`
	// Message is the title of the commit.
	Message string `json:"message,omitempty" jsonschema_description:"Title of the commit."`
	// Replace allows another package of ours at the same place to be replaced.
	Replace bool `json:"replace,omitempty" jsonschema_description:"Replace another package of this program that is already there."`
	// LicenseAck is the id of a licence that asks for care, which a package in a public place must name.
	LicenseAck string `json:"license_ack,omitempty" jsonschema_description:"Id of the source's licence; needed in a public place when the source is gated, private, non-commercial or of no known licence."`
}

// publisher is one kind of place.
type publisher struct {
	key     string   // of the entry in a recipe
	options []string // further keys that an entry of this kind may have, beside those of all kinds
	doc     string
	ref     func(t Target) string // empty when the entry is of another kind
	open    func(t Target, baseDir string) (Store, error)
	scheme  string                             // of references
	place   func(rest string, t *Target) error // fills the entry of a reference without its scheme
	keeps   bool                               // a commit cannot be undone
}

// common lists the keys that entries of all kinds may have.
var common = []string{"license_ack"}

// publishers lists every kind of store, sorted by key.
var publishers = []publisher{
	{
		key:     "dir",
		options: []string{"replace"},
		doc:     "a directory of this machine",
		ref:     func(t Target) string { return t.Dir },
		open: func(t Target, baseDir string) (Store, error) {
			path := filepath.FromSlash(t.Dir)
			if !filepath.IsAbs(path) {
				path = filepath.Join(baseDir, path)
			}
			return Dir{Path: path, Replace: t.Replace}, nil
		},
		scheme: "dir",
		place:  placeDir,
	},
	{
		key:     "hub",
		options: []string{"private", "gated", "branch", "tag", "endpoint", "message"},
		doc:     "a repository of Hugging Face",
		ref:     func(t Target) string { return t.Hub },
		open: func(t Target, _ string) (Store, error) {
			h := Hub{Repo: t.Hub, Private: t.Private, Gated: t.Gated, Branch: t.Branch, Tag: t.Tag, Endpoint: t.Endpoint, Message: t.Message}
			return h, h.check()
		},
		scheme: "hf",
		place: func(rest string, t *Target) error {
			t.Hub, t.Branch, _ = strings.Cut(rest, "@")
			return nil
		},
		keeps: true,
	},
	{
		key:     "modelscope",
		options: []string{"private", "branch", "tag", "endpoint", "message"},
		doc:     "a repository of ModelScope",
		ref:     func(t Target) string { return t.ModelScope },
		open: func(t Target, _ string) (Store, error) {
			m := ModelScope{Repo: t.ModelScope, Private: t.Private, Branch: t.Branch, Tag: t.Tag, Endpoint: t.Endpoint, Message: t.Message}
			return m, m.check()
		},
		scheme: "ms",
		place: func(rest string, t *Target) error {
			t.ModelScope, t.Branch, _ = strings.Cut(rest, "@")
			return nil
		},
		keeps: true,
	},
	{
		key:     "oci",
		options: []string{"replace", "private"},
		doc:     "a tag of an OCI registry",
		ref:     func(t Target) string { return t.OCI },
		open: func(t Target, _ string) (Store, error) {
			return OCI{Ref: t.OCI, Replace: t.Replace, Private: t.Private}, nil
		},
		scheme: "oci",
		place:  func(rest string, t *Target) error { t.OCI = rest; return nil },
	},
	{
		key:     "s3",
		options: []string{"replace", "private", "endpoint", "region"},
		doc:     "a prefix of a bucket in an S3-compatible store",
		ref:     func(t Target) string { return t.S3 },
		open: func(t Target, _ string) (Store, error) {
			return S3{Ref: t.S3, Endpoint: t.Endpoint, Region: t.Region, Replace: t.Replace, Private: t.Private}, nil
		},
		scheme: "s3",
		place:  placeS3,
	},
}

// New opens the store that a publish entry names. Relative directories start at baseDir. Nothing is read or sent yet.
func New(t Target, baseDir string) (Store, error) {
	var named []publisher
	var known []string
	for _, p := range publishers {
		known = append(known, fmt.Sprintf("%s (%s)", p.key, p.doc))
		if p.ref(t) != "" {
			named = append(named, p)
		}
	}
	if len(named) != 1 {
		return nil, fmt.Errorf("a publish entry names one place, this one names %d; known: %s", len(named), strings.Join(known, ", "))
	}
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	var set map[string]any
	if err := json.Unmarshal(b, &set); err != nil {
		return nil, err
	}
	for key := range set {
		if key != named[0].key && !slices.Contains(named[0].options, key) && !slices.Contains(common, key) {
			return nil, fmt.Errorf("%s: is no option of %s", key, named[0].key)
		}
	}
	return named[0].open(t, baseDir)
}

// With is the entry with those of the given options that its kind of place has: a command line sets them for all of
// its places.
func (t Target) With(options ...string) (Target, error) {
	set := map[string]bool{}
	for _, p := range publishers {
		for _, o := range options {
			if p.ref(t) != "" && slices.Contains(p.options, o) {
				set[o] = true
			}
		}
	}
	b, err := json.Marshal(set)
	if err != nil {
		return t, err
	}
	err = json.Unmarshal(b, &t)
	return t, err
}

// permanent reports whether what a place has shown stays there.
func (t Target) permanent() bool {
	return slices.ContainsFunc(publishers, func(p publisher) bool { return p.keeps && p.ref(t) != "" })
}

// placeholder is what may stand in a place instead of the package's name.
const placeholder = "{name}"

// Named is the entry for the package of a name: {name} in a place, a branch or a tag becomes it.
func (t Target) Named(name string) (Target, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return t, err
	}
	var set map[string]any
	if err := json.Unmarshal(b, &set); err != nil {
		return t, err
	}
	for key, v := range set {
		text, ok := v.(string)
		if !ok || slices.Contains(common, key) {
			continue
		}
		text = strings.ReplaceAll(text, placeholder, name)
		if strings.ContainsAny(text, "{}") {
			return t, fmt.Errorf("%s: %q has braces; %s is the one placeholder there is", key, v, placeholder)
		}
		set[key] = text
	}
	if b, err = json.Marshal(set); err != nil {
		return t, err
	}
	var named Target
	err = json.Unmarshal(b, &named)
	return named, err
}
