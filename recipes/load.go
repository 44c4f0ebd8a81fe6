package recipes

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// LoadFile is Load for a file; an error of the file system is returned unchanged.
func LoadFile(path string, sections []string, overrides ...string) (*Recipe, error) {
	data, err := readLimited(path)
	if err != nil {
		return nil, err
	}
	return Load(data, path, sections, overrides...)
}

// Load reads a recipe. The filename is used in messages and for Recipe.Dir; sections are the names of
// the stages that have options. Overrides such as "quantize.bits=8" or "publish[0].dir=out" replace
// single values of the recipe before it is checked; an index equal to the length of a list appends.
// They change the recipe and not its variants, unless the path begins with "variants".
//
// Every error is an *Error or [Errors]. With an error about keys or values, the recipe is what could be read, good for nothing but
// finding more mistakes in its sections; it is nil if the text has none.
func Load(data []byte, filename string, sections []string, overrides ...string) (*Recipe, error) {
	root, err := read(filename, data)
	if err != nil {
		return nil, err
	}
	for _, o := range overrides {
		if root, err = override(root, o); err != nil {
			return nil, err
		}
	}
	r, err := build(root, filename, sections)
	if r == nil {
		return nil, err
	}
	// Expanding checks target and limits of each variant as soon as the recipe is loaded.
	_, more := r.Expand()
	return r, Join(err, more)
}

var ownKeys = []string{"version", "name", "model", "target", "limits", "variants"}

// build checks a tree and converts it to a Recipe, or to what can be read of it; nil if that is nothing.
func build(root *node, filename string, sections []string) (*Recipe, error) {
	r := &Recipe{
		Target:   DefaultTarget(),
		Limits:   DefaultLimits(),
		Stages:   make(map[string]Section, len(sections)),
		Dir:      filepath.Dir(filename),
		file:     filename,
		sections: sections,
		root:     root,
	}
	if root.kind != mapping {
		return nil, r.Errorf("", "a recipe must be a mapping that begins with \"version: 1\", not %s", root)
	}
	// The version comes first: with a different version, other errors would mislead.
	if err := r.decode("version", &r.Version); err != nil {
		return nil, err
	}
	switch {
	case root.get("version") == nil:
		return nil, r.Errorf("version", "is missing; write \"version: %d\"", Version)
	case r.Version != Version:
		return nil, r.Errorf("version", "must be %d, the only version this program reads, not %d", Version, r.Version)
	}
	known := slices.Concat(ownKeys, sections)
	var m mistakes
	for _, e := range root.entries {
		if !slices.Contains(known, e.key) {
			m.add(e.unknown("", known))
		}
	}
	for _, name := range sections {
		r.Stages[name] = Section{file: filename, name: name, node: root.get(name)}
	}
	for _, step := range []func() error{r.readName, r.readModel, r.readTarget, r.readLimits, r.readVariants} {
		m.add(step())
	}
	return r, m.err()
}

// decode reads one top-level key, if it is there.
func (r *Recipe) decode(key string, v any) error {
	if n := r.root.get(key); n != nil {
		return decodeInto(n, v, key)
	}
	return nil
}

// A name becomes a directory and a tag, so it must be valid as both everywhere.
var nameRE = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

const nameRule = "must be letters, digits, '.', '_' and '-', begin and end with a letter or digit, and have at most 128 characters"

func (r *Recipe) readName() error {
	if err := r.decode("name", &r.Name); err != nil {
		return err
	}
	switch {
	case r.root.get("name") == nil:
		return r.Errorf("name", "is missing; it names the package that is made")
	case !nameRE.MatchString(r.Name):
		return r.Errorf("name", "%s, not %s", nameRule, shorten(r.Name))
	}
	return nil
}

var (
	repoRE     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?$`)
	revisionRE = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/-]*$`)
)

func (r *Recipe) readModel() error {
	m := &r.Model
	if err := r.decode("model", m); err != nil {
		return err
	}
	switch {
	case m.Repo == "" && m.Path == "":
		return r.Errorf("model", "needs either repo, such as {repo: Qwen/Qwen3-0.6B}, or path")
	case m.Repo != "" && m.Path != "":
		return r.Errorf("model", "has both repo and path; keep one")
	case m.Path != "" && m.Revision != "":
		return r.Errorf("model.revision", "goes with repo; a path has no revisions")
	case m.Path != "":
		return nil
	case !repoRE.MatchString(m.Repo) || strings.Contains(m.Repo, ".."):
		return r.Errorf("model.repo", "must be a repository such as Qwen/Qwen3-0.6B, not %s%s", shorten(m.Repo), meant(m.Repo))
	case m.Revision == "":
		m.Revision = "main"
	case !revisionRE.MatchString(m.Revision) || strings.Contains(m.Revision, ".."):
		return r.Errorf("model.revision", "must be a commit, a tag or a branch, not %s", shorten(m.Revision))
	}
	return nil
}

func (r *Recipe) readTarget() error {
	t := &r.Target
	if err := r.decode("target", t); err != nil {
		return err
	}
	if !slices.Contains(Engines, t.Engine) {
		return r.Errorf("target.engine", "must be one of %s, not %s", quoteAll(Engines), shorten(t.Engine))
	}
	if t.Context < 1 && (t.Context < 0 || r.root.get("target").get("context") != nil) {
		return r.Errorf("target.context", "must be a number of tokens, 1 or more, not %d", t.Context)
	}
	if t.Form != "" && !slices.Contains(Forms, t.Form) {
		return r.Errorf("target.form", "must be one of %s, not %s", quoteAll(Forms), shorten(t.Form))
	}
	if t.Form == FormC4 && t.Engine < EngineC4 {
		return r.Errorf("target.form", "c4 is not loaded by engines before %s: set target.engine: %q", EngineC4, EngineC4)
	}
	if t.SOC != "" && !slices.Contains(SOCs, t.SOC) {
		return r.Errorf("target.soc", "must be one of %s, not %s", quoteAll(SOCs), shorten(t.SOC))
	}
	switch {
	case t.KVCache == "" || slices.Contains(Caches, t.KVCache):
	case strings.HasPrefix(strings.ToLower(t.KVCache), "tq"):
		return r.Errorf("target.kv_cache", "%s is rejected: with keys and values in 3 or 4 bits engines compute garbage; use one of %s",
			shorten(t.KVCache), quoteAll(Caches))
	default:
		return r.Errorf("target.kv_cache", "must be one of %s, not %s", quoteAll(Caches), shorten(t.KVCache))
	}
	if len(t.Backends) == 0 {
		return r.Errorf("target.backends", "must name at least one backend, such as [cpu]")
	}
	for i, b := range t.Backends {
		at := fmt.Sprintf("target.backends[%d]", i)
		switch {
		case !slices.Contains(Backends, b):
			return r.Errorf(at, "must be one of %s, not %s", quoteAll(Backends), shorten(b))
		case slices.Contains(t.Backends[:i], b):
			return r.Errorf(at, "names %s twice", b)
		}
	}
	return nil
}

func (r *Recipe) readLimits() error {
	l := &r.Limits
	if err := r.decode("limits", l); err != nil {
		return err
	}
	if l.Memory == 0 {
		return r.Errorf("limits.memory", "must be more than nothing")
	}
	if l.DeviceMemory != 0 && l.DeviceMemory < LeastDeviceMemory {
		return r.Errorf("limits.device_memory", "must be at least %s, or absent for what is free", LeastDeviceMemory)
	}
	if l.Threads < 0 || l.Threads > maxThreads {
		return r.Errorf("limits.threads", "must be 0, for all cores, or a number up to %d, not %d", maxThreads, l.Threads)
	}
	if most := 1 + maxVariants; l.Parallel < 0 || l.Parallel > most {
		return r.Errorf("limits.parallel", "must be 0, for automatic, or a number up to %d, not %d", most, l.Parallel)
	}
	return nil
}

const (
	maxVariants = 100     // each is a package to make
	maxThreads  = 1 << 10 // no machine has more
)

func (r *Recipe) readVariants() error {
	list := r.root.get("variants")
	if list == nil || list.kind == null {
		return nil
	}
	if list.kind != sequence {
		return list.errorf("variants", "must be a list, not %s", list)
	}
	if len(list.items) > maxVariants {
		return list.errorf("variants", "must be at most %d", maxVariants)
	}
	known := slices.Concat([]string{"name", "target", "limits"}, r.sections)
	var m mistakes
	for i, n := range list.items {
		v, err := r.readVariant(n, fmt.Sprintf("variants[%d]", i), known)
		if m.add(err); err == nil {
			r.Variants = append(r.Variants, v)
		}
	}
	return m.err()
}

// readVariant reads the variant at a path.
func (r *Recipe) readVariant(n *node, at string, known []string) (v Variant, err error) {
	if n.kind != mapping {
		return v, n.errorf(at, "must be a mapping with a name and what differs, not %s", n)
	}
	var m mistakes
	for _, e := range n.entries {
		if !slices.Contains(known, e.key) {
			m.add(e.unknown(at, known))
		}
	}
	v.patch = n
	if name := n.get("name"); name == nil {
		m.add(n.errorf(at+".name", "is missing; it names the package that is made"))
	} else {
		m.add(decodeInto(name, &v.Name, at+".name"))
	}
	if err := m.err(); err != nil {
		return v, err
	}
	if !nameRE.MatchString(v.Name) {
		return v, r.Errorf(at+".name", "%s, not %s", nameRule, shorten(v.Name))
	}
	// Names become directories, and those ignore case on some systems.
	same := func(o Variant) bool { return strings.EqualFold(o.Name, v.Name) }
	if strings.EqualFold(r.Name, v.Name) || slices.ContainsFunc(r.Variants, same) {
		return v, r.Errorf(at+".name", "is already the name of another package of this recipe: %s", v.Name)
	}
	return v, nil
}
