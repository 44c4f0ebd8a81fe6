package source

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
)

// Origin is the place of a checkpoint: where it comes from, and where its files are.
type Origin struct {
	// Dir holds its files.
	Dir string
	// Hub, Repo, Revision and Access are those of [manifest.Source].
	Hub, Repo, Revision, Access string
	// Files are those of the checkpoint with their digests; nil until they are known.
	Files []hub.File
	// Heads are the beginnings of the shards if Dir need not hold their weights: none of those can be read until the open
	// checkpoint is given some. Else nil.
	Heads map[string]safetensors.Head
	// Elsewhere is the place that the weights are fetched from; nil if they are in Dir.
	Elsewhere *hub.Snapshot
}

// OfSkeleton is the origin of a checkpoint with only its small files and headers on this machine.
func OfSkeleton(sk *hub.Skeleton) Origin {
	o := Origin{Dir: sk.Dir, Hub: sk.Source, Repo: sk.Repo, Revision: sk.Revision}
	for name, h := range sk.Headers {
		if o.Heads == nil {
			o.Heads = make(map[string]safetensors.Head, len(sk.Headers))
		}
		o.Heads[name] = safetensors.Head{Size: h.Size, Bytes: h.Header}
	}
	return o
}

// Terms returns the licence that the card of the checkpoint in dir states, as [about.Terms] does.
func Terms(dir string) (license, name string, err error) {
	card, err := ReadOptional(dir, about.CardName)
	if err != nil {
		return "", "", err
	}
	license, name = about.Terms(card)
	return license, name, nil
}

// OtherError lists the files of a checkpoint that differ from the expected ones.
type OtherError struct{ Files []string }

func (e *OtherError) Error() string {
	verb := " differ"
	if len(e.Files) == 1 {
		verb = " differs"
	}
	return "the source is not what the package was made from: " + strings.Join(e.Files, ", ") + verb
}

// CheckFiles returns an [OtherError] if files and wanted differ in a name or a digest.
func CheckFiles(files, wanted []hub.File) error {
	sums := map[string]string{}
	for _, f := range files {
		sums[f.Name] = f.SHA256
	}
	var names []string
	for _, f := range wanted {
		if s, ok := sums[f.Name]; !ok || s != f.SHA256 {
			names = append(names, f.Name)
		}
		delete(sums, f.Name)
	}
	for name := range sums {
		names = append(names, name)
	}
	return other(names)
}

// CheckManifests compares the checkpoint in dir with the sources that manifests record: it contains every file that a manifest
// names, except licences and cards, which do not affect results, and no other weights. Manifests may be nil.
func CheckManifests(ctx context.Context, dir string, manifests ...*manifest.Manifest) error {
	manifests = slices.DeleteFunc(manifests, func(m *manifest.Manifest) bool { return m == nil || len(m.Source.Files) == 0 })
	if len(manifests) == 0 {
		return nil
	}
	s, err := hub.Resolve(ctx, hub.Ref{Path: dir}, hub.Options{})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // opening it reports what is missing
	case err != nil:
		return err
	}
	// Most other checkpoints differ in sizes, which are quick to compare.
	if err := otherThan(manifests, s.Files, func(a hub.File, b manifest.File) bool { return a.Size == b.Size }); err != nil {
		return err
	}
	files, err := hub.HashFiles(ctx, s, "")
	if err != nil {
		return err
	}
	return otherThan(manifests, files, func(a hub.File, b manifest.File) bool { return a.SHA256 == b.SHA256 })
}

// otherThan returns an [OtherError] if files are not those of the manifests, as far as same decides.
func otherThan(manifests []*manifest.Manifest, files []hub.File, same func(a hub.File, b manifest.File) bool) error {
	var names []string
	for _, m := range manifests {
		for _, b := range m.Source.Files {
			i := slices.IndexFunc(files, func(a hub.File) bool { return a.Name == b.Name })
			if unread := b.Name == about.CardName || about.IsLicense(b.Name); !unread && (i < 0 || !same(files[i], b)) {
				names = append(names, b.Name)
			}
		}
		for _, a := range files {
			named := slices.ContainsFunc(m.Source.Files, func(b manifest.File) bool { return a.Name == b.Name })
			if strings.HasSuffix(a.Name, ".safetensors") && !named {
				names = append(names, a.Name)
			}
		}
	}
	return other(names)
}

// other is the error of files with these names; nil if there are none.
func other(names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return &OtherError{slices.Compact(names)}
}
