package depcheck

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/llmexport/llmexport"
	root   = "../.."
)

// levels is the map of the program, lowest first. A package imports only packages of earlier rows; packages of one
// row do not know each other. Directories named internal belong to the package that they lie in, unless they have a place of
// their own: what several packages stand on is below them all.
var levels = []struct {
	level    int
	packages []string
}{
	{0, []string{"docs", "internal/exit", "internal/fault", "internal/jsondoc", "internal/venv"}},
	{0, []string{"internal/digest", "runtime/tensor"}},
	{0, []string{"runtime/tokenizer/internal/bytelevel", "runtime/tokenizer/internal/chars", "runtime/tokenizer/internal/merge",
		"runtime/tokenizer/internal/trie", "runtime/tokenizer/internal/wordcache"}},
	{0, []string{"runtime/tokenizer/internal/mtok", "runtime/tokenizer/internal/regex"}},
	{0, []string{"runtime/tokenizer/internal/dialect"}},
	{0, []string{"runtime/tokenizer/engine"}},
	{0, []string{"runtime/template/syntax"}},
	{0, []string{"runtime/kernel", "runtime/picture", "runtime/tokenizer", "runtime/template", "runtime/template/lower"}},
	{0, []string{"runtime/prompt", "runtime/sound"}},
	{0, []string{"runtime/template/conversations", "runtime/template/engine", "runtime/tokenizer/repository"}},
	{0, []string{"runtime/template/templatetest", "runtime/kernel/kerneltest"}},
	{0, []string{"internal/synthetic/shard", "internal/outliers"}},
	{1, []string{"internal/disk", "internal/machine", "internal/sealed", "internal/sheet"}},
	{1, []string{"internal/transfer"}},
	{1, []string{"internal/blob"}},
	{1, []string{"internal/blob/blobtest"}},
	{1, []string{"internal/hub"}},
	{1, []string{"recipes", "quant", "runtime/mnn", "publish/manifest", "runtime/tokenizer/parity"}},
	{1, []string{"publish/provenance", "publish/channel", "quant/quanttest"}},
	{2, []string{"runtime/backend"}},
	{2, []string{"backends"}},
	{2, []string{"backends/generic"}},
	{2, []string{"backends/cpu"}},
	{2, []string{"internal/fakehub", "internal/fakes3"}},
	{3, []string{"pipeline/arch"}},
	{3, []string{"pipeline/effort"}},
	{3, []string{"pipeline/estimate"}},
	{3, []string{"pipeline", "pipeline/forward", "pipeline/lower", "pipeline/safetensors", "runtime"}},
	{4, []string{"pipeline/reference", "verify/hftokenizers", "publish/place", "publish/figure"}},
	{4, []string{"publish/about"}},
	{4, []string{"publish/report"}},
	{4, []string{"pipeline/calibrate/corpus", "publish/place/placetest"}},
	{4, []string{"publish/dir", "publish/hubs", "publish/oci", "publish/s3"}},
	{4, []string{"pipeline/shared"}},
	{4, []string{"runtime/chat"}},
	{4, []string{"runtime/sentence"}},
	{4, []string{"pipeline/plan", "pipeline/calibrate", "pipeline/quantized", "verify", "publish", "runtime/bench",
		"internal/synthetic/checkpoint", "internal/synthetic/packed"}},
	{4, []string{"pipeline/source", "verify/device"}},
	{4, []string{"runtime/serve"}},
	{4, []string{"pipeline/assemble"}},
	{5, []string{"pipeline/stage"}},
	{5, []string{"pipeline/watch"}},
	{5, []string{"pipeline/stage/stagetest", "internal/fakeadb"}},
	{6, []string{"cmd/llmexport", "cmd/llmexport-cuda", "cmd/llmexport-sign", "cmd/llmexport-worker", "verify/enginetest", "verify/transformerstest",
		"verify/tokenizerstest",
		"internal/depcheck", "internal/fakehub/cmd", "internal/logits", "internal/synthetic", "internal/peers", "internal/quality", "internal/image", "internal/sbom",
		"internal/transfer/benchhub", "internal/outliers/make"}},
}

// thirdParty lists what packages of level 0 import from other modules: everything else stands on them.
var thirdParty = map[string][]string{
	"docs":              {},
	"internal/digest":   {},
	"internal/exit":     {},
	"internal/fault":    {},
	"internal/jsondoc":  {},
	"internal/venv":     {},
	"runtime/tensor":    {"golang.org/x/sys"},
	"runtime/kernel":    {"golang.org/x/sys"},
	"runtime/picture":   {"github.com/bep/imagemeta", "golang.org/x/image"},
	"runtime/prompt":    {},
	"runtime/sound":     {"github.com/mewkiz/flac"},
	"runtime/tokenizer": {"golang.org/x/text"},
	"runtime/template":  {"golang.org/x/text"},

	"runtime/tokenizer/engine":             {},
	"runtime/tokenizer/internal/bytelevel": {},
	"runtime/tokenizer/internal/chars":     {},
	"runtime/tokenizer/internal/dialect":   {},
	"runtime/tokenizer/internal/merge":     {},
	"runtime/tokenizer/internal/mtok":      {},
	"runtime/tokenizer/internal/regex":     {"golang.org/x/text"},
	"runtime/tokenizer/internal/trie":      {},
	"runtime/tokenizer/internal/wordcache": {},
	"runtime/tokenizer/repository":         {},

	"runtime/template/conversations": {},
	"runtime/template/engine":        {},
	"runtime/template/lower":         {},
	"runtime/template/syntax":        {},
	"runtime/template/templatetest":  {},
	"runtime/kernel/kerneltest":      {},

	"internal/outliers":        {},
	"internal/synthetic/shard": {},
}

// owners are the packages that alone import from a module: what others need of it they ask them for.
var owners = map[string][]string{
	"github.com/minio/minio-go/v7":    {"publish/s3"},
	"oras.land/oras-go/v2":            {"publish/oci"},
	"github.com/opencontainers":       {"publish/oci"},
	"github.com/jedib0t/go-pretty/v6": {"internal/sheet"},
}

// row is a package's place in levels, or -1. The second result is the package of the map that it belongs to.
func row(pkg string) (int, string) {
	outer, _, _ := strings.Cut(pkg+"/", "/internal/")
	for _, owner := range []string{pkg, strings.TrimSuffix(outer, "/")} {
		for i, l := range levels {
			if slices.Contains(l.packages, owner) {
				return i, owner
			}
		}
	}
	return -1, pkg
}

// edge is one import.
type edge struct {
	from, to string // to is a full import path
	at       string // file:line
}

// imports parses all files that are no tests, whatever their build tags, as the map holds on every system.
func imports(t *testing.T) (edges []edge, packages []string) {
	t.Helper()
	seen := map[string]bool{}
	fset := token.NewFileSet()
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
			return
		}
		f, err := parser.ParseFile(fset, filepath.Join(root, filepath.FromSlash(name)), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		pkg := path.Dir(name)
		if !seen[pkg] {
			seen[pkg] = true
			packages = append(packages, pkg)
		}
		for _, spec := range f.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			edges = append(edges, edge{pkg, to, fmt.Sprintf("%s:%d", name, fset.Position(spec.Pos()).Line)})
		}
	})
	if len(packages) < 10 {
		t.Fatalf("only %d packages found: the walk is broken", len(packages))
	}
	return edges, packages
}

// walk visits the files of the repository, without build outputs and hidden directories; names have forward slashes.
func walk(t *testing.T, visit func(name string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if e.IsDir() {
			hidden := strings.HasPrefix(e.Name(), ".") && name != ".github" && name != ".ci"
			if hidden || name == "bin" || name == "dist" || strings.HasPrefix(e.Name(), "_") {
				return filepath.SkipDir
			}
			return nil
		}
		if e.Type().IsRegular() && name != ".git" { // a file in a work tree of git
			visit(name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLevels(t *testing.T) {
	edges, packages := imports(t)
	for _, p := range packages {
		if r, _ := row(p); r < 0 {
			t.Errorf("%s has no level: give it one in the table of this test", p)
		}
	}
	for _, e := range edges {
		to, ours := strings.CutPrefix(e.to, module+"/")
		if !ours {
			continue
		}
		from, owner := row(e.from)
		dest, destOwner := row(to)
		if from < 0 || dest < 0 || owner == destOwner || dest < from {
			continue
		}
		t.Errorf("%s: %s (level %d) imports %s (level %d)", e.at, e.from, levels[from].level, to, levels[dest].level)
	}
}

func TestThirdParty(t *testing.T) {
	edges, _ := imports(t)
	for _, e := range edges {
		_, owner := row(e.from)
		allowed, listed := thirdParty[owner]
		first, _, _ := strings.Cut(e.to, "/")
		if !listed || !strings.Contains(first, ".") || strings.HasPrefix(e.to, module+"/") {
			continue
		}
		if !slices.ContainsFunc(allowed, func(m string) bool { return e.to == m || strings.HasPrefix(e.to, m+"/") }) {
			t.Errorf("%s: %s imports %s, which its list does not allow", e.at, e.from, e.to)
		}
	}
	seen := map[string]bool{}
	for _, e := range edges {
		for m, allowed := range owners {
			if e.to != m && !strings.HasPrefix(e.to, m+"/") {
				continue
			}
			seen[m] = true
			if _, owner := row(e.from); !slices.Contains(allowed, owner) {
				t.Errorf("%s: %s imports %s, which only %q do", e.at, e.from, e.to, allowed)
			}
		}
	}
	for m := range owners {
		if !seen[m] {
			t.Errorf("nothing imports %s any more", m)
		}
	}
	for i, l := range levels {
		for _, p := range l.packages {
			if _, listed := thirdParty[p]; listed != (l.level == 0) {
				t.Errorf("row %d: %s is of level %d, listed in thirdParty: %v", i, p, l.level, listed)
			}
		}
	}
}

// TestLevelsNoticeOffence makes sure that the test above can fail.
func TestLevelsNoticeOffence(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to string
		allowed  bool
	}{
		"down":          {"pipeline/stage", "verify", true},
		"up":            {"verify", "pipeline/stage", false},
		"same row":      {"recipes", "quant", false},
		"within level":  {"runtime/kernel", "runtime/tensor", true},
		"own internal":  {"runtime/mnn", "runtime/mnn/internal/fb", true},
		"from internal": {"runtime/mnn/internal/fb", "runtime/mnn", true}, // the compiler refuses the cycle
		"internal up":   {"runtime/mnn/internal/fb", "pipeline/arch", false},
		"listed below":  {"runtime/tokenizer/engine", "runtime/tokenizer/internal/trie", true},
		"listed up":     {"runtime/tokenizer/internal/trie", "runtime/tokenizer", false},
	} {
		t.Run(name, func(t *testing.T) {
			from, owner := row(tc.from)
			to, toOwner := row(tc.to)
			if from < 0 || to < 0 {
				t.Fatal("unknown package")
			}
			if got := owner == toOwner || to < from; got != tc.allowed {
				t.Errorf("%s imports %s: allowed %v, want %v", tc.from, tc.to, got, tc.allowed)
			}
		})
	}
}

// apart are the sides of the wall of every verification: what computes with the checkpoint, and all that makes packages and
// runs them.
var apart = struct{ judge, judged []string }{
	[]string{"pipeline/forward", "pipeline/reference"},
	[]string{"pipeline/lower", "pipeline/plan", "backends", "backends/cpu", "backends/generic", "runtime/backend", "runtime/mnn", "runtime",
		"quant"},
}

// TestWall: neither side imports the other, directly or through others.
func TestWall(t *testing.T) {
	edges, packages := imports(t)
	next := map[string][]string{}
	for _, e := range edges {
		if to, ours := strings.CutPrefix(e.to, module+"/"); ours {
			next[e.from] = append(next[e.from], to)
		}
	}
	var reach func(seen map[string]bool, pkg string)
	reach = func(seen map[string]bool, pkg string) {
		for _, to := range next[pkg] {
			if !seen[to] {
				seen[to] = true
				reach(seen, to)
			}
		}
	}
	for _, sides := range [][2][]string{{apart.judge, apart.judged}, {apart.judged, apart.judge}} {
		for _, from := range sides[0] {
			if !slices.Contains(packages, from) {
				t.Errorf("there is no package %s", from)
			}
			seen := map[string]bool{}
			reach(seen, from)
			for _, to := range sides[1] {
				if seen[to] {
					t.Errorf("%s imports %s", from, to)
				}
			}
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
