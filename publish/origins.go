package publish

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// origin is one kind of place that packages are pulled from.
type origin struct {
	scheme string // of a reference, without the colon
	doc    string
	// open finds the package behind rest, the reference without its scheme, and fixes the state it is read at.
	open func(ctx context.Context, rest string, o PullOptions) (Origin, error)
}

// origins lists every kind, sorted by scheme. A reference without a scheme is a directory.
var origins = []origin{
	{"dir", "a directory (PATH or dir:PATH)", openDir},
	{"hf", "hf://ORG/NAME[@REVISION]", openHub},
	{"ms", "ms://ORG/NAME[@REVISION]", openModelScope},
	{"oci", "oci://REGISTRY/REPOSITORY:TAG or @DIGEST", openOCI},
	{"s3", "s3://BUCKET/PREFIX", openS3},
}

// Origins says how references of every kind are spelled.
func Origins() []string {
	var list []string
	for _, k := range origins {
		list = append(list, k.doc)
	}
	return list
}

// splitRef takes the scheme off a reference: "hf://org/name" and "dir:path" have one. A plain path has none, a drive
// letter neither, nor does a path that is spelled ./name:tag.
func splitRef(ref string) (scheme, rest string) {
	if path, ok := strings.CutPrefix(ref, "dir:"); ok {
		return "dir", strings.TrimPrefix(path, "//")
	}
	if scheme, rest, ok := strings.Cut(ref, "://"); ok {
		return scheme, rest
	}
	return "dir", ref
}

// OpenOrigin opens the place that a reference names, such as hf://org/name@revision, oci://host/name:tag,
// s3://bucket/path or a directory.
func OpenOrigin(ctx context.Context, ref string, o PullOptions) (Origin, error) {
	scheme, rest := splitRef(ref)
	if rest == "" {
		return nil, errors.New("the reference names no place")
	}
	i := slices.IndexFunc(origins, func(k origin) bool { return k.scheme == scheme })
	if i < 0 {
		return nil, fmt.Errorf("%.40q is no kind of place that packages are pulled from; known: %s: %w", scheme, strings.Join(Origins(), ", "), tensor.ErrUnsupported)
	}
	return origins[i].open(ctx, rest, o)
}

// ParseTarget is the publish entry of a reference, spelled as [OpenOrigin] takes it. Relative directories are relative to
// the working directory.
func ParseTarget(ref string) (Target, error) {
	scheme, rest := splitRef(ref)
	if rest == "" {
		return Target{}, errors.New("the reference names no place")
	}
	var t Target
	var known []string
	for _, p := range publishers {
		if p.scheme == scheme {
			err := p.place(rest, &t)
			return t, err
		}
		known = append(known, p.scheme)
	}
	return Target{}, fmt.Errorf("%.40q is no kind of place that packages are published to; known: %s: %w", scheme, strings.Join(known, ", "), tensor.ErrUnsupported)
}

// placeDir fills the entry of a directory.
func placeDir(rest string, t *Target) error {
	abs, err := filepath.Abs(filepath.FromSlash(rest))
	t.Dir = filepath.ToSlash(abs)
	return err
}
