package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// PullOptions configures Pull. The zero value of each field is useful.
type PullOptions struct {
	// Digest, if not empty, is the expected digest of the package; any other is tensor.ErrCorrupt.
	Digest digest.Digest
	// Replace allows replacing another package of llmexport in the directory; nothing else is ever overwritten.
	Replace bool
	// Files is the number of concurrent transfers; 0 is 4.
	Files int
	// Transfer configures each transfer; its Progress is not used.
	Transfer transfer.Options
	// Progress is called with the number of received bytes of a file. Calls do not overlap.
	Progress func(file string, done, total int64)
	// Check is called on the complete package in dir before it is installed; if it fails, nothing is installed.
	Check func(ctx context.Context, dir string) error

	step func(action string) error // see Place.step
}

// plainName matches package names that may be used as directory names without asking: those valid in recipes.
var plainName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// Pulled is the result of a pull.
type Pulled struct {
	Status place.Status `json:"status"`
	// From is the reference including the pulled state; pulling it later gives the same bytes.
	From   string        `json:"from"`
	Dir    string        `json:"dir"`
	Digest digest.Digest `json:"digest"`
	// Signed reports whether the package in Dir has a signature, see [manifest.SignatureName]. It was not verified.
	Signed bool `json:"signed"`
	// Files and Bytes include manifest.json and the signature.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Fetched counts the bytes from the place in this run, Reused those that were already on this machine.
	Fetched int64 `json:"fetched"`
	Reused  int64 `json:"reused"`
}

// Pull pulls the package of a place to the directory dir, which contains the whole new or the whole old package at
// every moment; {name} in dir is the package's name, and an empty dir is the same as {name}. Every byte is compared
// with the manifest, and the manifest with its own digest, before the directory is renamed. A signature is pulled
// without being verified; if the place has none, the one of the same package in the directory is kept.
//
// The package is assembled next to the directory, in <dir>.pull-<16 hex digits of its digest>, where a later pull of it
// resumes after an error or a kill. Files of the replaced package are reused. Two pulls to one directory take turns:
// the second reuses the result of the first.
//
// Errors: tensor.ErrCorrupt if the manifest or a file does not have its digest, and those of the place.
func Pull(ctx context.Context, from place.Origin, dir string, o PullOptions) (_ place.Package, done Pulled, err error) {
	done.From = from.String()
	m, data, err := readManifest(ctx, from, o)
	if err != nil {
		return place.Package{}, Pulled{}, err
	}
	signature, err := from.Read(ctx, manifest.SignatureName, manifest.MaxSignature)
	if errors.Is(err, fs.ErrNotExist) {
		signature, err = nil, nil
	}
	if err != nil {
		return place.Package{}, Pulled{}, err
	}
	if dir = cmp.Or(dir, place.Placeholder); strings.Contains(dir, place.Placeholder) {
		// The maker of the package chose its name, and a directory called ~ or -rf is dangerous.
		if !plainName.MatchString(m.Name) {
			return place.Package{}, done, fmt.Errorf("the package is called %q, which is not used as a directory name; give the directory", m.Name)
		}
		dir = strings.ReplaceAll(dir, place.Placeholder, m.Name)
	}
	d := Place{Path: dir, Replace: o.Replace, step: o.step}
	target, err := d.target()
	if err != nil {
		return place.Package{}, Pulled{}, err
	}
	if here, ok := from.(origin); ok && disk.Resolve(string(here)) != disk.Resolve(target) {
		if err := Apart(string(here), target); err != nil {
			return place.Package{}, Pulled{}, err
		}
	}
	const digits = 2 * suffixBytes
	work := target + pullMark + m.Digest.Hex()[:digits]
	s, err := d.begin(ctx, target, m.Digest, signature, workplace{work: work, whole: filepath.Join(work, wholeName), keep: true})
	if err != nil {
		return place.Package{}, Pulled{}, fmt.Errorf("%s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	done.Status, done.Dir, done.Digest = s.was.status(), dir, m.Digest
	own := []place.Cargo{place.Loaded(manifest.FileName, data)}
	if signature != nil {
		own = slices.Insert(own, 0, place.Loaded(manifest.SignatureName, signature))
	}
	done.Files, done.Bytes = len(m.Files)+len(own), m.Bytes()
	for _, c := range own {
		done.Bytes += c.Size
		done.Fetched += c.Size
	}
	if kept := s.was.kept(m.Digest); kept != nil && signature == nil {
		own = slices.Insert(own, 0, place.Loaded(manifest.SignatureName, kept))
	}
	done.Signed = len(own) > 1
	whole := s.target
	if s.was.same {
		done.Reused = m.Bytes()
	} else {
		g := &gathering{d: d, from: from, m: m, own: own, work: work, old: s.was.old, oldDir: s.target, o: o}
		if err := g.run(ctx); err != nil {
			return place.Package{}, Pulled{}, err
		}
		done.Fetched += g.fetched.Load()
		done.Reused = g.reused.Load()
		whole = s.whole
	}
	if o.Check != nil {
		if err := o.Check(ctx, whole); err != nil {
			return place.Package{}, Pulled{}, err
		}
	}
	s.receipt.Status = done.Status
	if _, err := s.Commit(ctx); err != nil {
		return place.Package{}, Pulled{}, err
	}
	zerolog.Ctx(ctx).Info().Str("dir", dir).Str("status", string(done.Status)).Int64("fetched", done.Fetched).Int64("reused",
		done.Reused).Str("digest", string(m.Digest)).Msg("pulled")
	return place.Package{Dir: dir, Manifest: m}, done, nil
}

// readManifest reads and checks the manifest of a place.
func readManifest(ctx context.Context, from place.Origin, o PullOptions) (*manifest.Manifest, []byte, error) {
	data, err := from.Read(ctx, manifest.FileName, manifest.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("contains no package of llmexport: %w", err)
	}
	if err != nil {
		return nil, nil, err
	}
	m, err := manifest.Parse(data)
	if err != nil {
		// Like any file, it is read again if its digest is wrong.
		zerolog.Ctx(ctx).Warn().Err(err).Str("file", manifest.FileName).Msg("reading it again")
		if data, err = from.Read(ctx, manifest.FileName, manifest.MaxSize); err == nil {
			m, err = manifest.Parse(data)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", manifest.FileName, err)
	}
	if o.Digest != "" && m.Digest != o.Digest {
		return nil, nil, fmt.Errorf("the package there has digest %s, not %s: %w", m.Digest, o.Digest, tensor.ErrCorrupt)
	}
	return m, data, nil
}
