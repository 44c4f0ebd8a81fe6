package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var (
	enginePattern  = regexp.MustCompile(`^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$`)
	minimumPattern = regexp.MustCompile(`^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}$`)
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, tensor.ErrCorrupt)...)
}

// DamagedError reports a package that differs from its manifest, or a manifest that was changed after it was written. It is a
// tensor.ErrCorrupt.
type DamagedError struct{ err error }

func (e *DamagedError) Error() string { return "damaged: " + e.err.Error() }
func (e *DamagedError) Unwrap() error { return e.err }

// Damaged turns a tensor.ErrCorrupt into a DamagedError, for callers that compare bytes with a digest of a manifest
// themselves. It returns other errors unchanged.
func Damaged(err error) error {
	if is := (*DamagedError)(nil); errors.As(err, &is) || !errors.Is(err, tensor.ErrCorrupt) {
		return err
	}
	return &DamagedError{err}
}

func damagedf(format string, args ...any) error { return &DamagedError{corrupt(format, args...)} }

func (m *Manifest) validate() error {
	if m.Version != Version {
		return corrupt("manifest version %d instead of %d", m.Version, Version)
	}
	if err := CheckName(m.Name); err != nil || strings.Contains(m.Name, "/") {
		return corrupt("package name %.80q is not a plain file name", m.Name)
	}
	if m.Tool.Name == "" || m.Tool.Version == "" {
		return corrupt("tool has no name or no version")
	}
	if !minimumPattern.MatchString(m.MinimumEngine) {
		return corrupt("minimum engine %.40q is not of the form 3.6.0", m.MinimumEngine)
	}
	if !enginePattern.MatchString(m.Target.Engine) {
		return corrupt("target engine %.40q is not of the form 3.6 or 3.6.0", m.Target.Engine)
	}
	if len(m.Recipe) > maxRecipe {
		return corrupt("recipe of %d bytes, the limit is %d", len(m.Recipe), maxRecipe)
	}
	if len(m.Recipe) > 0 && !bytes.HasPrefix(bytes.TrimLeft(m.Recipe, " \t\r\n"), []byte("{")) {
		return corrupt("recipe is not a JSON object")
	}
	for _, check := range []func() error{
		m.validateFiles, m.validateSource, m.validateTensors, m.validateChecks, m.validateThreads,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if err := ascending("backends", m.Target.Backends, strings.Compare); err != nil {
		return err
	}
	return ascending("ignored config keys", m.IgnoredKeys, strings.Compare)
}

func (m *Manifest) validateFiles() error {
	if len(m.Files) == 0 {
		return corrupt("manifest lists no files")
	}
	folded := make(map[string]string, len(m.Files))
	var total int64
	for _, f := range m.Files {
		if err := f.validate(); err != nil {
			return err
		}
		var err error
		if total, err = tensor.Add(total, f.Size); err != nil {
			return err
		}
		low := strings.ToLower(f.Name)
		if own(low) {
			return corrupt("manifest lists %s", f.Name)
		}
		if other, ok := folded[low]; ok && other != f.Name {
			return corrupt("%s and %s are one file where names have no case", other, f.Name)
		}
		folded[low] = f.Name
	}
	for low, name := range folded {
		for i := range len(low) {
			if low[i] != '/' {
				continue
			}
			if own(low[:i]) {
				return corrupt("%s lies in a directory called %s", name, low[:i])
			}
			if other, ok := folded[low[:i]]; ok {
				return corrupt("%s is a file and the directory of %s", other, name)
			}
		}
	}
	return ascending("files", m.Files, compareFiles)
}

// own reports whether a name in lower case is that of the manifest or its signature, which no manifest lists.
func own(low string) bool { return low == FileName || low == SignatureName }

func (m *Manifest) validateSource() error {
	if a := m.Source.Access; a != "" && a != Gated && a != Private && a != Unknown {
		return corrupt("source: access %.40q", a)
	}
	if h := m.Source.Hub; h != "" && (h != ModelScope || m.Source.Repo == "") {
		return corrupt("source: repository %.80q of hub %.40q", m.Source.Repo, h)
	}
	for _, f := range m.Source.Files {
		if err := f.validate(); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if f.Role != "" {
			return corrupt("source: %s has a role", f.Name)
		}
	}
	return ascending("source files", m.Source.Files, compareFiles)
}

func (f File) validate() error {
	if err := CheckName(f.Name); err != nil {
		return err
	}
	if f.Size < 0 {
		return corrupt("%s: size %d", f.Name, f.Size)
	}
	if !digest.IsHex(f.SHA256) {
		return corrupt("%s: sha256 %.80q is not 64 lower-case hex digits", f.Name, f.SHA256)
	}
	return nil
}

func (m *Manifest) validateTensors() error {
	sizes := make(map[string]int64, len(m.Files))
	for _, f := range m.Files {
		sizes[f.Name] = f.Size
	}
	for i, t := range m.Tensors {
		if t.Name == "" || t.Op == "" || t.Spec == "" {
			return corrupt("tensor %.80q has no name, op or spec", t.Name)
		}
		if err := CheckName(t.Part); t.Part != "" && (err != nil || strings.Contains(t.Part, "/")) {
			return corrupt("tensor %.80q: the name of its part, %.80q, is not a plain file name", t.Name, t.Part)
		}
		if before := m.Tensors[max(i-1, 0)]; before.File == t.File && before.Part != t.Part {
			return corrupt("%.80q holds tensors of the parts %.80q and %.80q", t.File, before.Part, t.Part)
		}
		size, ok := sizes[t.File]
		if !ok {
			return corrupt("tensor %.80q is in %.80q, which is not in the package", t.Name, t.File)
		}
		end, err := tensor.Add(t.Offset, t.Size)
		if err != nil {
			return fmt.Errorf("tensor %.80q: %w", t.Name, err)
		}
		if end > size {
			return corrupt("tensor %.80q ends at byte %d of %s, which has %d", t.Name, end, t.File, size)
		}
		if !digest.IsHex(t.SHA256) {
			return corrupt("tensor %.80q: sha256 %.80q is not 64 lower-case hex digits", t.Name, t.SHA256)
		}
	}
	return ascending("tensors", m.Tensors, compareTensors)
}

func (m *Manifest) validateChecks() error {
	seen := map[string]bool{}
	passed := false
	for _, c := range m.Checks {
		if c.Name == "" || seen[c.Name] {
			return corrupt("check %.80q has no name or appears twice", c.Name)
		}
		seen[c.Name] = true
		if c.Passed && c.Skipped {
			return corrupt("check %.80q is passed and skipped", c.Name)
		}
		if m.Verified && c.Failed() {
			return corrupt("package is verified and check %.80q failed", c.Name)
		}
		passed = passed || c.Passed
		for _, k := range slices.Sorted(maps.Keys(c.Value)) {
			if !finite(c.Value[k]) {
				return corrupt("check %.80q: value %.80q is not a finite number", c.Name, k)
			}
		}
	}
	if m.Verified && !passed {
		return corrupt("package is verified and no check passed")
	}
	for _, k := range slices.Sorted(maps.Keys(m.Metrics)) {
		if v := m.Metrics[k]; k == "" || !finite(v.Value) || !finite(v.StdErr) || v.StdErr < 0 {
			return corrupt("metric %.80q has no name or is not a finite number", k)
		}
	}
	for i, g := range m.Goldens {
		if err := g.validate(); err != nil {
			return fmt.Errorf("golden %d: %w", i, err)
		}
	}
	return nil
}

func (g Golden) validate() error {
	negative := func(id int32) bool { return id < 0 }
	switch {
	case len(g.Prompt) == 0 || g.Output == nil:
		return corrupt("no prompt or no output")
	case g.Provenance == "":
		return corrupt("no provenance")
	case slices.ContainsFunc(g.Prompt, negative) || slices.ContainsFunc(g.Output, negative):
		return corrupt("negative token id")
	}
	for _, l := range g.TopLogits {
		if l.Token < 0 || !finite(float64(l.Value)) {
			return corrupt("logit of token %d is not a finite number", l.Token)
		}
	}
	return nil
}

func (m *Manifest) validateThreads() error {
	for _, t := range m.Threads {
		if t.Pack < 1 {
			return corrupt("pack width %d", t.Pack)
		}
		if err := ascending("safe thread counts", t.Safe, cmp.Compare[int]); err != nil {
			return err
		}
		if err := ascending("unsafe thread counts", t.Unsafe, cmp.Compare[int]); err != nil {
			return err
		}
		for _, n := range slices.Concat(t.Safe, t.Unsafe) {
			if n < 1 {
				return corrupt("thread count %d", n)
			}
		}
		for _, n := range t.Safe {
			if _, both := slices.BinarySearch(t.Unsafe, n); both {
				return corrupt("%d threads are safe and unsafe for pack width %d", n, t.Pack)
			}
		}
	}
	return ascending("pack widths", m.Threads, compareThreads)
}

// ascending returns an error unless the list is sorted without duplicates.
func ascending[T any](what string, list []T, compare func(a, b T) int) error {
	for i := 1; i < len(list); i++ {
		if compare(list[i-1], list[i]) >= 0 {
			return corrupt("%s are not sorted or not unique at entry %d", what, i)
		}
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
