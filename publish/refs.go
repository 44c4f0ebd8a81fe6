package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/s3"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Origins describes the syntax of references of every kind.
func Origins() []string {
	var list []string
	for _, k := range kinds {
		list = append(list, k.form)
	}
	return list
}

// addressLike matches the start of URLs, but neither paths nor drives of Windows.
var addressLike = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]+|[^/\\]*@[^/\\]*):`)

// splitRef splits the scheme off a reference such as "hf://org/name" or "dir:path". Plain paths have none, including
// those with a drive letter and ./name:tag.
func splitRef(ref string) (scheme, rest string, err error) {
	scheme, rest, named := strings.Cut(ref, "://")
	if path, ok := strings.CutPrefix(ref, "dir:"); ok {
		scheme, rest = "dir", strings.TrimPrefix(path, "//")
	} else if !named {
		scheme, rest = "dir", ref
		if addressLike.MatchString(ref) { // hf:/org/name is not meant as a directory called hf:
			err = fmt.Errorf("%.200q has no scheme:// and does not look like a path; write ./%.200s for a directory of that name", ref, ref)
		}
	}
	switch {
	case rest == "":
		err = errors.New("the reference is empty")
	case strings.TrimSpace(ref) != ref:
		err = fmt.Errorf("%.200q begins or ends with a space", ref)
	}
	return scheme, rest, err
}

// kindOf returns the kind of a reference, and the reference without its scheme. For errors, done says what is done with
// packages there, and known lists the kinds.
func kindOf(ref, done string, known func() []string) (kind, string, error) {
	scheme, rest, err := splitRef(ref)
	if err != nil {
		return kind{}, "", &place.RefError{Err: err}
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.scheme == scheme })
	if i < 0 {
		return kind{}, "", &place.RefError{Err: fmt.Errorf("%.40q is not a kind of place that packages are %s; the kinds are %s: %w", scheme,
			done, strings.Join(known(), ", "), tensor.ErrUnsupported)}
	}
	return kinds[i], rest, nil
}

// schemes lists the schemes of all kinds.
func schemes() []string {
	var list []string
	for _, k := range kinds {
		list = append(list, k.scheme)
	}
	return list
}

// OpenOrigin opens the place that a reference names, such as hf://org/name@revision, oci://host/name:tag,
// s3://bucket/path or a directory. An invalid reference is a [RefError].
func OpenOrigin(ctx context.Context, ref string, o place.OpenOptions) (place.Origin, error) {
	k, rest, err := kindOf(ref, "pulled from", Origins)
	if err != nil {
		return nil, err
	}
	return k.origin(ctx, rest, o)
}

// OpenShelf opens the place that a reference names, whose channels are wanted: a directory of packages, hf://org/name,
// oci://host/name or s3://bucket/path. An invalid reference is a [place.RefError].
func OpenShelf(ref string, o place.OpenOptions) (place.Shelf, error) {
	k, rest, err := kindOf(ref, "pulled from", Origins)
	if err != nil {
		return nil, err
	}
	if k.shelf == nil {
		return nil, &place.RefError{Err: fmt.Errorf("%s has no channels: %w", k.doc, tensor.ErrUnsupported)}
	}
	return k.shelf(rest, o)
}

// registryLike matches the start of image references: a host with a port or a domain.
var registryLike = regexp.MustCompile(`^(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}|[A-Za-z0-9.-]+:[0-9]+)(:[0-9]+)?/[^/]`)

// Meant guesses the full reference for ref, which has no scheme: that of a registry, or of a repository of Hugging
// Face. It is empty if ref looks like neither. A reference of a registry needs a tag.
func Meant(ref string) string {
	named := placeholderRE.ReplaceAllString(ref, "name")
	repo, revision := recipes.MeantRepo(named)
	switch {
	case repo != "" && !strings.HasPrefix(named, repo): // an address of Hugging Face
		if revision != "" {
			revision = "@" + revision
		}
		return "hf://" + repo + revision
	case strings.Contains(ref, "://"):
		return ""
	case registryLike.MatchString(named) && !strings.ContainsAny(path.Base(ref), ":@"):
		return "oci://" + ref + ":TAG"
	case registryLike.MatchString(named):
		return "oci://" + ref
	case repo != "":
		return "hf://" + strings.TrimRight(ref, "/")
	}
	return ""
}

// ParseTarget returns the publish entry for a reference in the syntax of [OpenOrigin]. Relative directories are
// relative to the working directory. One whose first element does not exist, and that could be a repository, is a
// [place.RefError].
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

// splitBranch splits "org/name@branch".
func splitBranch(rest string) (repo, branch string, err error) {
	repo, branch, named := strings.Cut(rest, "@")
	if named && branch == "" {
		err = &place.RefError{Err: fmt.Errorf("%.200q has no branch after the @", rest)}
	}
	return repo, branch, err
}

// placeDir fills in the entry of a directory.
func placeDir(rest string, t *Target) error {
	abs, err := filepath.Abs(filepath.FromSlash(rest))
	t.Dir = filepath.ToSlash(abs)
	return err
}

// placeS3 fills in the entry of a prefix.
func placeS3(rest string, t *Target) error {
	s, err := s3.Parse(rest)
	t.S3, t.Endpoint, t.Region = s.Ref, s.Endpoint, s.Region
	return err
}
