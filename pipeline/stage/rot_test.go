package stage_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
)

// rotRecipe has variants that leave every kind of entry in the cache: with and without text, sensitivities, an allocation,
// codes that were folded, rotated and tuned, verified packages, and a source that passes by.
const rotRecipe = `
calibrate: {tokens: 64, window: 16, probe: 16}
quantize: {method: rtn, block: 32}
verify: {kl: {max: 9}, layers: {max: 9}, perplexity: {window: 16, windows: 1, decode: 2, max_source: 1e9, max_ratio: 1e9}}
variants:
  - {name: budget, quantize: {method: gptq, budget: {bpw: 5.5}}}
  - {name: folded, quantize: {method: [awq, rtn]}, verify: {enabled: false}}
  - {name: tuned, quantize: {method: [rotation, gptq, {distill: {steps: 1, tokens: 16}}]}, verify: {enabled: false}}
  - {name: streamed, fetch: {keep: false}, quantize: {method: search}, verify: {enabled: false}}
`

// rotSample is what fits the ordinary tests.
const rotSample = "quantize: {block: 32}\nverify: {enabled: false}"

// rotted is a recipe that was run, and what its runs must give.
type rotted struct {
	work
	variants []string
	packages map[string]string // listings by variant
	entries  map[string]string // files of entries of the store by their path, as SHA-256
	owners   map[string]string // variants by entry
	table    map[string]map[string]*[2]int
	cases    int
}

// damages are what can happen to one file. Sizes and times stay as they are where bytes are flipped; with is another
// file, which takes part in a swap.
var damages = []struct {
	name string
	do   func(path, with string) error
}{
	{"first byte", func(path, _ string) error { return flipByte(path, 0) }},
	{"middle byte", func(path, _ string) error { return flipByte(path, .5) }},
	{"last byte", func(path, _ string) error { return flipByte(path, 1) }},
	{"cut", func(path, _ string) error {
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, st.Size()/2)
	}},
	{"emptied", func(path, _ string) error { return os.Truncate(path, 0) }},
	{"removed", func(path, _ string) error { return os.Remove(path) }},
	{"swapped", exchange},
	{"one more", func(path, with string) error {
		b, err := os.ReadFile(with)
		return errors.Join(err, os.WriteFile(filepath.Join(filepath.Dir(path), "0-stray"), b, 0o666))
	}},
}

// flipByte changes a bit; an empty file gets a byte.
func flipByte(path string, at float64) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(b) == 0 {
		b = []byte{0}
	}
	b[int(at*float64(len(b)-1))] ^= 1
	return errors.Join(os.WriteFile(path, b, 0o666), os.Chtimes(path, st.ModTime(), st.ModTime()))
}

func exchange(path, with string) error {
	if with == "" {
		return errors.New("nothing to swap with")
	}
	return errors.Join(os.Rename(path, path+".x"), os.Rename(with, path), os.Rename(path+".x", with))
}

// newRotted runs a recipe for the first time.
func newRotted(t *testing.T, w work) *rotted {
	t.Helper()
	r := &rotted{
		work: w, packages: map[string]string{}, entries: map[string]string{}, owners: map[string]string{},
		table: map[string]map[string]*[2]int{},
	}
	for _, run := range w.must(t) {
		name := run.Recipe.Name
		r.variants = append(r.variants, name)
		r.packages[name] = listing(t, filepath.Join(w.dir, "dist", name))
		m := &run.Made
		for _, a := range []pipeline.Artifact{m.Inputs, m.Calibration, m.Allocation, m.Codes, m.Weights, m.Verdict} {
			if strings.HasPrefix(a.Path, w.cache()) && r.owners[filepath.Base(a.Path)] == "" {
				r.owners[filepath.Base(a.Path)] = name
			}
		}
	}
	for _, name := range r.dirs(t) {
		if r.owners[name] == "" { // sensitivities are no artifact
			r.owners[name] = "budget"
		}
		for path, sum := range sums(t, filepath.Join(w.cache(), name)) {
			r.entries[name+"/"+path] = sum
		}
	}
	return r
}

// dirs lists the entries of the store.
func (r *rotted) dirs(t *testing.T) (names []string) {
	t.Helper()
	list, err := pipeline.List(r.cache())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names
}

// sums are the SHA-256 of all files below dir.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := manifest.HashFile(t.Context(), path)
		rel, _ := filepath.Rel(dir, path)
		all[filepath.ToSlash(rel)] = f.SHA256
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var digits = regexp.MustCompile(`[0-9a-f]{8,}|[0-9]+`)

// class is what files have in common that only differ in numbers.
func class(name string) string {
	kind, rest, _ := strings.Cut(name, "-")
	_, rest, _ = strings.Cut(rest, "/")
	return kind + "/" + digits.ReplaceAllString(rest, "N")
}

// run makes the packages of variants and demands the right bytes: of them, and of everything in the store.
func (r *rotted) run(t *testing.T, class, damage string, variants ...string) {
	t.Helper()
	wrong := ""
	for _, v := range variants {
		err := os.RemoveAll(filepath.Join(r.dir, "dist", v))
		if err == nil {
			_, err = stagetest.RunOne(t.Context(), r.recipe(), r.cache(), 2, v)
		}
		if err != nil {
			wrong = err.Error()
		} else if got := listing(t, filepath.Join(r.dir, "dist", v)); got != r.packages[v] {
			wrong = "published is\n" + got + "\nright is\n" + r.packages[v]
		}
	}
	for _, name := range r.dirs(t) {
		for path, sum := range sums(t, filepath.Join(r.cache(), name)) {
			if r.entries[name+"/"+path] != sum {
				wrong = cmp.Or(wrong, fmt.Sprintf("%s/%s in the store is wrong", name, path))
			}
		}
	}
	if r.table[class] == nil {
		r.table[class] = map[string]*[2]int{}
	}
	cell := r.table[class][damage]
	if cell == nil {
		cell = &[2]int{}
		r.table[class][damage] = cell
	}
	cell[1]++
	if r.cases++; wrong == "" {
		cell[0]++
		return
	}
	t.Errorf("%s, %s: %s", class, damage, wrong)
}

// restore brings back an entry that an earlier case took out, as it shared a file.
func (r *rotted) restore(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(r.cache(), name)); err == nil {
		return
	}
	if _, err := stagetest.RunOne(t.Context(), r.recipe(), r.cache(), 2, r.owners[name]); err != nil {
		t.Fatal(err)
	}
}

// forgetPackages removes the packages of a variant from the store.
func (r *rotted) forgetPackages(t *testing.T, variant string) {
	t.Helper()
	for name, by := range r.owners {
		if by == variant && strings.HasPrefix(name, "package-") {
			if err := os.RemoveAll(filepath.Join(r.cache(), name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// partner is a file that a file may be taken for: of the same name in another entry, else any of another entry.
func (r *rotted) partner(file string) string {
	entry, rest, _ := strings.Cut(file, "/")
	var anything, sameName string
	for _, f := range slices.Sorted(maps.Keys(r.entries)) {
		e, name, _ := strings.Cut(f, "/")
		switch {
		case e == entry:
		case name == rest && class(f) == class(file):
			return f
		case name == rest:
			sameName = cmp.Or(sameName, f)
		default:
			anything = cmp.Or(anything, f)
		}
	}
	return cmp.Or(sameName, anything)
}

// damage does to a file of a finished entry what damages[d] says.
func (r *rotted) damage(t *testing.T, file string, d int) {
	t.Helper()
	entry, _, _ := strings.Cut(file, "/")
	with := r.partner(file)
	other, _, _ := strings.Cut(with, "/")
	r.restore(t, entry)
	r.restore(t, other)
	r.restore(t, entry)
	if strings.HasPrefix(entry, "parity-") { // only the assembly of a package reads it
		r.forgetPackages(t, r.owners[entry])
	}
	if err := damages[d].do(filepath.Join(r.cache(), file), filepath.Join(r.cache(), with)); err != nil {
		t.Fatalf("%s, %s: %v", file, damages[d].name, err)
	}
	owners := []string{r.owners[entry]}
	if damages[d].name == "swapped" && r.owners[other] != owners[0] {
		owners = append(owners, r.owners[other])
	}
	r.run(t, class(file), damages[d].name, owners...)
}

// resumed are the files that a killed run is resumed from.
var resumed = regexp.MustCompile(`^weights-\w+/(journal|llm\.mnn\.weight)$|` +
	`^codes-\w+/([0-9]+\.codes|ops\.jsonl|overlay\.json|foldings\.json|rotated-.*)$`)

// damagePartial does it to a file of an entry that a killed run would have left.
func (r *rotted) damagePartial(t *testing.T, file string, d int) {
	t.Helper()
	entry, rest, _ := strings.Cut(file, "/")
	owner := r.owners[entry]
	with := r.partner(file)
	other, _, _ := strings.Cut(with, "/")
	r.restore(t, other)
	r.restore(t, entry)
	// A copy of the other file, as that one's own place in the store is another case.
	b, err := os.ReadFile(filepath.Join(r.cache(), with))
	copied := filepath.Join(t.TempDir(), "with")
	if err = errors.Join(err, os.WriteFile(copied, b, 0o666)); err != nil {
		t.Fatal(err)
	}
	r.forgetPackages(t, owner)
	dir := filepath.Join(r.cache(), entry) + ".partial"
	err = errors.Join(os.Rename(filepath.Join(r.cache(), entry), dir), os.Remove(filepath.Join(dir, "done.json")),
		damages[d].do(filepath.Join(dir, rest), copied))
	if err != nil {
		t.Fatalf("%s, %s: %v", file, damages[d].name, err)
	}
	r.run(t, "partial "+class(file), damages[d].name, owner)
}

// damageBlob does it to a blob of the hub's cache, before something is to be made of it.
func (r *rotted) damageBlob(t *testing.T, path, with string, d int) {
	t.Helper()
	age(t, filepath.Dir(path), "*")
	first := r.variants[0]
	for _, pattern := range []string{"", "weights-*", "package-*"} { // at first, digests are remembered
		if pattern == "" {
			if _, err := stagetest.RunOne(t.Context(), r.recipe(), r.cache(), 2, first); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for name, by := range r.owners {
			if ok, _ := filepath.Match(pattern, name); ok && by == first {
				if err := os.RemoveAll(filepath.Join(r.cache(), name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	b, err := os.ReadFile(path)
	kind := "hub/small file"
	if strings.Contains(string(b), `"data_offsets"`) {
		kind = "hub/shard"
	}
	if err = errors.Join(err, damages[d].do(path, with)); err != nil {
		t.Fatal(err)
	}
	r.run(t, kind, damages[d].name, first)
}

// print shows what was done to which files, and how often that ended in the right bytes.
func (r *rotted) print() {
	var names []string
	for _, d := range damages {
		names = append(names, d.name)
	}
	fmt.Printf("%-36s %s\n", "right bytes after", strings.Join(names, "  "))
	for _, c := range slices.Sorted(maps.Keys(r.table)) {
		fmt.Printf("%-36s", c)
		for _, n := range names {
			text := "-"
			if cell := r.table[c][n]; cell != nil {
				text = fmt.Sprintf("%d/%d", cell[0], cell[1])
			}
			fmt.Printf(" %*s ", len(n), text)
		}
		fmt.Println()
	}
	fmt.Printf("%d cases\n", r.cases)
}

// Regardless of the damage to a file of the cache, the next run ends with the right bytes: without an error, in the package and in
// the cache. make rot does everything to every file.
func TestRot(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	if os.Getenv("LLMEXPORT_ROT") != "" {
		rotAll(t)
		return
	}
	t.Parallel()
	r := newRotted(t, newWork(t, families+"llama", rotSample))
	// Of each kind of file one, each damaged in another way.
	kinds := map[string]string{}
	for file := range r.entries {
		kinds[class(file)] = max(kinds[class(file)], file)
	}
	for i, kind := range slices.Sorted(maps.Keys(kinds)) {
		r.damage(t, kinds[kind], i%len(damages))
		if resumed.MatchString(kinds[kind]) {
			r.damagePartial(t, kinds[kind], i%5)
		}
	}
}

// A run that is resumed after any tensor was damaged leaves the same entry, its journal too.
func TestRotOfStream(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	w, _, _ := onHub(t, families+"phi3", 2, "fetch: {keep: false}\n"+rotSample)
	r := newRotted(t, w)
	for _, file := range r.files() {
		if strings.HasPrefix(file, "weights-") && strings.HasSuffix(file, ".weight") {
			for d := range 2 { // the first tensor, and one in the middle
				r.damagePartial(t, file, d)
			}
		}
	}
	if r.cases < 2 {
		t.Errorf("%d cases", r.cases)
	}
}

func rotAll(t *testing.T) {
	w, _, _ := onHub(t, families+"phi3", 2, rotRecipe)
	start := time.Now()
	r := newRotted(t, w)
	defer r.print()
	files := r.files()
	for _, name := range []string{"digests.json", "receipts.json"} {
		for d := range damages[:7] {
			if err := damages[d].do(filepath.Join(r.cache(), name), filepath.Join(r.cache(), files[0])); err != nil {
				t.Fatal(err)
			}
			r.run(t, name, damages[d].name, r.owners[strings.Split(files[0], "/")[0]])
		}
	}
	blobs, err := filepath.Glob(filepath.Join(w.dir, "hub", "models--org--tiny", "blobs", "*"))
	if err != nil || len(blobs) < 4 {
		t.Fatalf("%v, %v", blobs, err)
	}
	for i, path := range blobs {
		for d := range damages[:7] {
			r.damageBlob(t, path, blobs[(i+1)%len(blobs)], d)
		}
	}
	for _, file := range files {
		for d := range damages {
			r.damage(t, file, d)
			if resumed.MatchString(file) {
				r.damagePartial(t, file, d)
			}
		}
		t.Logf("%s: %d cases in %s", file, r.cases, time.Since(start).Round(time.Second))
	}
}

// files lists the files of all entries, first one of each class, then the second ones, and so on.
func (r *rotted) files() []string {
	files, rank, seen := slices.Sorted(maps.Keys(r.entries)), map[string]int{}, map[string]int{}
	for _, f := range files {
		rank[f] = seen[class(f)]
		seen[class(f)]++
	}
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(rank[a], rank[b]) })
	return files
}
