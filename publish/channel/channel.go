// Package channel defines channels: names such as latest and stable that move from release to release in a place, so that
// users pull by a name that stays.
//
// A [Release] is one package or several, such as the variants of a recipe, with what was measured of them. A channel is a
// [History] of releases; its current one is the newest that was not withdrawn. [History.Move] puts a release in front,
// [History.Rollback] withdraws what is newer than an older one. The channels of a place are an [Index], which directories,
// buckets and repositories hold as a file, channels.json:
//
//	{
//	 "version": 1,
//	 "channels": {
//	  "stable": [
//	   {
//	    "moved": "2026-11-23T10:00:00Z",
//	    "packages": [
//	     {"name": "qwen3-int4", "digest": "sha256:...", "at": "0a1b2c3d", "bytes": 402653184, "device_bytes": 520093696,
//	      "bits": 4.5, "kl": 0.012, "engine": "3.6.0", "backends": ["cpu"], "verified": true}
//	    ]
//	   }
//	  ]
//	 }
//	}
//
// This package reads and writes nothing; the kinds of places do.
package channel

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Bounds of an index.
const (
	// MaxReleases bounds the history of a channel; the oldest releases are forgotten.
	MaxReleases = 32
	maxChannels = 64
	// maxPackages bounds a release: thousands of repositories in several variants each.
	maxPackages = 8192
	// maxEntries bounds the packages of all releases of a history, so that an index stays below MaxSize.
	maxEntries  = 2 * maxPackages
	maxText     = 255 // bytes of a name
	maxBackends = 16
)

// nameRE matches the names of channels: they are tags of registries, too.
var nameRE = regexp.MustCompile(`^[a-z][a-z0-9._-]{0,62}$`)

// CheckName rejects strings that cannot name a channel.
func CheckName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%.80q cannot name a channel; names begin with a letter and have up to 63 of a-z, 0-9, '.', '_' and '-'", name)
	}
	return nil
}

// Package is a package of a release.
type Package struct {
	// Name and Digest are those of its manifest.
	Name   string        `json:"name"`
	Digest digest.Digest `json:"digest"`
	// At is where the package is in the place: the name of a directory or prefix, a commit, or the digest of an artifact.
	At string `json:"at"`
	Facts
}

// Facts are what is known of a package without opening it.
type Facts struct {
	// Bytes is the size of the files that a device loads.
	Bytes int64 `json:"bytes"`
	// DeviceBytes is the memory that it needs on a device, 0 if unknown.
	DeviceBytes int64 `json:"device_bytes,omitempty"`
	// Bits is the mean number of bits that store a weight, scales included; 0 if unknown.
	Bits float64 `json:"bits,omitempty"`
	// KL is the mean divergence from the source in nats a token; nil if it was not measured.
	KL *float64 `json:"kl,omitempty"`
	// Engine is the oldest release of MNN that runs it.
	Engine string `json:"engine,omitempty"`
	// Backends compute it correctly.
	Backends []string `json:"backends,omitempty"`
	// Verified reports whether its checks ran and passed.
	Verified bool `json:"verified,omitempty"`
}

// Release is what a channel names at a time.
type Release struct {
	// Moved is when the channel first named it.
	Moved time.Time `json:"moved"`
	// Withdrawn is when a rollback took it back; zero if none did.
	Withdrawn time.Time `json:"withdrawn,omitzero"`
	// Packages are sorted by name.
	Packages []Package `json:"packages"`
}

// same reports whether two releases have the same packages.
func (r Release) same(o Release) bool {
	return slices.EqualFunc(r.Packages, o.Packages, func(a, b Package) bool { return a.Name == b.Name && a.Digest == b.Digest })
}

// Has reports whether the release has these packages.
func (r Release) Has(list []Package) bool {
	return !slices.ContainsFunc(list, func(p Package) bool {
		return !slices.ContainsFunc(r.Packages, func(o Package) bool { return o.Name == p.Name && o.Digest == p.Digest })
	})
}

// check rejects a release that Move would not have made.
func (r Release) check() error {
	for _, t := range []time.Time{r.Moved, r.Withdrawn} {
		if y := t.Year(); t.Nanosecond() != 0 || y > 9999 {
			return fmt.Errorf("a time is not a whole second of a year up to 9999")
		}
	}
	if r.Moved.IsZero() {
		return fmt.Errorf("a release has no time")
	}
	if n := len(r.Packages); n == 0 || n > maxPackages {
		return fmt.Errorf("a release has %d packages, not 1 to %d: %w", n, maxPackages, tensor.ErrUnsupported)
	}
	for i, p := range r.Packages {
		if i > 0 && r.Packages[i-1].Name >= p.Name {
			return fmt.Errorf("the packages of a release are not sorted by name")
		}
		if err := p.check(); err != nil {
			return fmt.Errorf("package %.80q: %w", p.Name, err)
		}
	}
	return nil
}

func (p Package) check() error {
	if err := element(p.At); err != nil {
		return err
	}
	if _, err := digest.Parse(string(p.Digest)); err != nil {
		return err
	}
	if p.Bytes < 0 || p.DeviceBytes < 0 || !(p.Bits >= 0 && p.Bits <= 64) || p.KL != nil && (*p.KL < 0 || math.IsInf(*p.KL, 0) || math.IsNaN(*p.KL)) {
		return fmt.Errorf("a number is out of its range")
	}
	if len(p.Backends) > maxBackends {
		return fmt.Errorf("%d backends, the limit is %d", len(p.Backends), maxBackends)
	}
	for _, s := range append([]string{p.Name, p.Engine}, p.Backends...) {
		if err := plain(s); err != nil {
			return err
		}
	}
	if p.Name == "" {
		return fmt.Errorf("has no name")
	}
	return nil
}

// plain rejects texts that are long or not printable.
func plain(s string) error {
	if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%.80q is not a short printable text", s)
	}
	return nil
}

// element rejects everything but one element of a path.
func element(s string) error {
	if err := plain(s); err != nil {
		return err
	}
	if s == "" || s == "." || s == ".." || strings.ContainsAny(s, `/\`) {
		return fmt.Errorf("%.80q does not name a package in the place", s)
	}
	return nil
}
