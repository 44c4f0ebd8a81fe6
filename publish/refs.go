package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/s3"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Origins says how references of every kind are spelled.
func Origins() []string {
	var list []string
	for _, k := range kinds {
		list = append(list, k.form)
	}
	return list
}

// addressLike is what begins as addresses of places and pages do, and no path and no drive of Windows does.
var addressLike = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]+|[^/\\]*@[^/\\]*):`)

// splitRef takes the scheme off a reference: "hf://org/name" and "dir:path" have one. A plain path has none, a drive
// letter neither, nor does a path that is spelled ./name:tag.
func splitRef(ref string) (scheme, rest string, err error) {
	scheme, rest, named := strings.Cut(ref, "://")
	if path, ok := strings.CutPrefix(ref, "dir:"); ok {
		scheme, rest = "dir", strings.TrimPrefix(path, "//")
	} else if !named {
		scheme, rest = "dir", ref
		if addressLike.MatchString(ref) { // hf:/org/name: nobody wants a directory called hf:
			err = fmt.Errorf("%.200q has no scheme:// and looks like no path; a directory of that name is ./%.200s", ref, ref)
		}
	}
	switch {
	case rest == "":
		err = errors.New("the reference names no place")
	case strings.TrimSpace(ref) != ref:
		err = fmt.Errorf("%.200q begins or ends with a space", ref)
	}
	return scheme, rest, err
}

// kindOf finds the kind of a reference, and the reference without its scheme. The last two say, for an error, what is
// done with packages there and how kinds are known to who does it.
func kindOf(ref, done string, known func() []string) (kind, string, error) {
	scheme, rest, err := splitRef(ref)
	if err != nil {
		return kind{}, "", &place.RefError{Err: err}
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.scheme == scheme })
	if i < 0 {
		return kind{}, "", &place.RefError{Err: fmt.Errorf("%.40q is no kind of place that packages are %s; known: %s: %w", scheme, done, strings.Join(known(), ", "), tensor.ErrUnsupported)}
	}
	return kinds[i], rest, nil
}

// schemes lists those of every kind.
func schemes() []string {
	var list []string
	for _, k := range kinds {
		list = append(list, k.scheme)
	}
	return list
}

// OpenOrigin opens the place that a reference names, such as hf://org/name@revision, oci://host/name:tag,
// s3://bucket/path or a directory. One that cannot be read is a [RefError].
func OpenOrigin(ctx context.Context, ref string, o place.OpenOptions) (place.Origin, error) {
	k, rest, err := kindOf(ref, "pulled from", Origins)
	if err != nil {
		return nil, err
	}
	return k.origin(ctx, rest, o)
}

// registryLike is what begins as a reference to an image does: with a host that has a port or a domain.
var registryLike = regexp.MustCompile(`^(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}|[A-Za-z0-9.-]+:[0-9]+)(:[0-9]+)?/[^/]`)

// Meant is the reference that somebody means who wrote ref without a scheme: that of a registry, or of a repository of Hugging
// Face. It is empty when ref looks like neither.
func Meant(ref string) string {
	named := strings.ReplaceAll(ref, place.Placeholder, "name")
	repo, revision := recipes.MeantRepo(named)
	switch {
	case repo != "" && !strings.HasPrefix(named, repo): // an address of Hugging Face
		if revision != "" {
			revision = "@" + revision
		}
		return "hf://" + repo + revision
	case strings.Contains(ref, "://"):
		return ""
	case registryLike.MatchString(named):
		return "oci://" + ref
	case repo != "":
		return "hf://" + strings.TrimRight(ref, "/")
	}
	return ""
}

// ParseTarget is the publish entry of a reference, spelled as [OpenOrigin] takes it. Relative directories are relative to
// the working directory. One whose first element is not there, and that could be a repository, is a [place.RefError].
func ParseTarget(ref string) (t Target, err error) {
	k, rest, err := kindOf(ref, "published to", schemes)
	if err != nil {
		return Target{}, err
	}
	if first, _, nested := strings.Cut(ref, "/"); nested && rest == ref && first != "" && first != "." && first != ".." && Meant(ref) != "" {
		if _, err := os.Lstat(first); errors.Is(err, fs.ErrNotExist) {
			return Target{}, &place.RefError{Err: fmt.Errorf("%.200q has no scheme:// and there is no directory %.200q; a new directory is ./%.200s", ref, first, ref)}
		}
	}
	err = k.place(rest, &t)
	return t, err
}

// splitBranch parts the branch from "org/name@branch".
func splitBranch(rest string) (repo, branch string, err error) {
	repo, branch, named := strings.Cut(rest, "@")
	if named && branch == "" {
		err = &place.RefError{Err: fmt.Errorf("%.200q names no branch behind the @", rest)}
	}
	return repo, branch, err
}

// placeDir fills the entry of a directory.
func placeDir(rest string, t *Target) error {
	abs, err := filepath.Abs(filepath.FromSlash(rest))
	t.Dir = filepath.ToSlash(abs)
	return err
}

// placeS3 fills the entry of a prefix.
func placeS3(rest string, t *Target) error {
	s, err := s3.Parse(rest)
	t.S3, t.Endpoint, t.Region = s.Ref, s.Endpoint, s.Region
	return err
}
