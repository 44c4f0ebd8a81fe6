package verify_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/verify"
)

const (
	tiny     = "../testdata/tiny-qwen3"
	families = "../pipeline/arch/testdata/"
)

// small configures the evaluation of the tests: enough for every check, in seconds.
const small = "perplexity: {window: 64, windows: 2, decode: 8}"

// scratch holds the packages that several tests share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "verify"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// good makes, once, the verified 4-bit package of tiny-qwen3.
var good = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "good")
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", err
	}
	return stagetest.Export(context.Background(), dir, tiny, "verify: {"+small+"}")
})

func goodPackage(t testing.TB) string {
	t.Helper()
	dir, err := good()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// open makes a subject of the package in dir, compared with the checkpoint in source unless that is empty.
func open(t testing.TB, dir, source string) *verify.Subject {
	t.Helper()
	pkg, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pkg.Close)
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	checks := verify.NewChecks()
	checks.Tokenizer.Strings = stagetest.Strings
	s := &verify.Subject{Package: pkg, Manifest: m, Options: verify.Options{
		Text: verify.BuiltIn, TextName: "the built-in text", Window: 64, Windows: 2, DecodeTokens: 8, Bits: 4, Checks: checks, Threads: 2, Memory: 1 << 30,
	}}
	if source != "" {
		s.Source = openSource(t, source, 1<<30)
	}
	return s
}

// openSource opens a checkpoint whose reference keeps a limit on memory.
func openSource(t testing.TB, dir string, memory int64) *verify.Source {
	t.Helper()
	src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(src.Close)
	v, err := assemble.VerifySource(src, verify.Options{Threads: 2, Memory: memory, Window: 64})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// edition is a copy of a package that a test changes and seals again, so that digests do not reveal the
// change.
type edition struct {
	t     testing.TB
	dir   string
	m     *manifest.Manifest
	parts []string // names of parts other than the text model
	shape [3]int   // width, width of heads and of MLPs; see [edition.rows]
}

func edit(t testing.TB, dir string) *edition {
	t.Helper()
	e := &edition{t: t, dir: t.TempDir()}
	if err := os.CopyFS(e.dir, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	var err error
	if e.m, err = manifest.Open(e.dir); err != nil {
		t.Fatal(err)
	}
	// Outputs recorded of the undamaged package would fail with everything else.
	e.m.Goldens = nil
	return e
}

func (e *edition) path(name string) string { return filepath.Join(e.dir, name) }

// file rewrites a file of the package.
func (e *edition) file(name string, change func(b []byte) []byte) {
	e.t.Helper()
	b, err := os.ReadFile(e.path(name))
	if err == nil {
		err = os.WriteFile(e.path(name), change(b), 0o666)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// graph rewrites the graph of the text model.
func (e *edition) graph(change func(g *mnn.Graph)) {
	e.t.Helper()
	e.partGraph("", change)
}

func (e *edition) partGraph(part string, change func(g *mnn.Graph)) {
	e.t.Helper()
	e.file(mnn.GraphFile(part), func(b []byte) []byte {
		g, err := mnn.Open(b)
		if err != nil {
			e.t.Fatal(err)
		}
		change(g)
		if b, err = g.Marshal(); err != nil {
			e.t.Fatal(err)
		}
		return b
	})
}

// json sets a key of a JSON file.
func (e *edition) json(name, key string, value any) {
	e.t.Helper()
	e.file(name, func(b []byte) []byte { return setKey(e.t, b, key, value) })
}

func setKey(t testing.TB, b []byte, key string, value any) []byte {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	m[key] = value
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tensor finds a tensor of the manifest by a part of its name.
func (e *edition) tensor(name string) manifest.Tensor {
	e.t.Helper()
	i := slices.IndexFunc(e.m.Tensors, func(t manifest.Tensor) bool { return strings.Contains(t.Name, name) })
	if i < 0 {
		e.t.Fatalf("no tensor %q", name)
	}
	return e.m.Tensors[i]
}

// span changes the bytes of a tensor in the weight file.
func (e *edition) span(name string, change func(span []byte)) {
	e.t.Helper()
	t := e.tensor(name)
	e.file(t.File, func(b []byte) []byte {
		change(b[t.Offset : t.Offset+t.Size])
		return b
	})
}

// seal makes the manifest agree with the files again.
func (e *edition) seal() {
	e.t.Helper()
	weights := map[string][]byte{}
	for i := range e.m.Tensors {
		t := &e.m.Tensors[i]
		w, ok := weights[t.File]
		if !ok {
			var err error
			if w, err = os.ReadFile(e.path(t.File)); err != nil {
				e.t.Fatal(err)
			}
			weights[t.File] = w
		}
		t.SHA256 = digest.Of(w[t.Offset : t.Offset+t.Size]).Hex()
	}
	e.list()
	// config.json names the content of the others.
	e.json(assemble.ConfigFile, "llmexport", map[string]any{"minimum_engine": e.m.MinimumEngine, "content": e.m.Content(), "parts": e.parts})
	e.list()
	e.write()
}

// list takes the files as they are into the manifest.
func (e *edition) list() {
	e.t.Helper()
	for i := range e.m.Files {
		f, err := manifest.HashFile(e.t.Context(), e.path(e.m.Files[i].Name))
		if err != nil {
			e.t.Fatal(err)
		}
		f.Role = e.m.Files[i].Role
		e.m.Files[i] = f
	}
}

// write writes the manifest as it is.
func (e *edition) write() {
	e.t.Helper()
	b, err := e.m.Marshal()
	if err == nil {
		err = os.WriteFile(e.path(manifest.FileName), b, 0o666)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// op finds an op of a graph.
func op(t testing.TB, g *mnn.Graph, name string) (int, *mnn.Op) {
	t.Helper()
	i := slices.IndexFunc(g.Ops, func(o mnn.Op) bool { return o.Name == name })
	if i < 0 {
		t.Fatalf("no op %q", name)
	}
	return i, &g.Ops[i]
}

// editCheckpoint copies a checkpoint whose weights are in one file and changes it.
func editCheckpoint(t testing.TB, dir string, change func(path func(name string) string)) string {
	t.Helper()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	change(func(name string) string { return filepath.Join(copied, name) })
	return copied
}

// scaleBF16 multiplies the tensors of a safetensors file whose names contain part by 2^exponent.
func scaleBF16(t testing.TB, path, part string, exponent int) {
	t.Helper()
	scaleBF16At(t, path, part, func(int, int) int { return exponent })
}

// scaleBF16At multiplies elements by powers of two, which rounds nothing: those of a vector count as columns.
func scaleBF16At(t testing.TB, path, part string, exponent func(row, col int) int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := 8 + int(binary.LittleEndian.Uint64(b))
	var entries map[string]struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:head], &entries); err != nil {
		t.Fatal(err)
	}
	found := false
	for name, e := range entries {
		if !strings.Contains(name, part) {
			continue
		}
		found = true
		if e.DType != "BF16" {
			t.Fatalf("%s is %s", name, e.DType)
		}
		cols := e.Shape[len(e.Shape)-1]
		for i := range (e.Offsets[1] - e.Offsets[0]) / 2 {
			at := b[head+e.Offsets[0]+2*i:]
			v := binary.LittleEndian.Uint16(at)
			was := int(v >> 7 & 0xff)
			if was == 0 {
				continue // zero, or as good as zero
			}
			is := min(max(was+exponent(i/cols, i%cols), 0), 254)
			binary.LittleEndian.PutUint16(at, v&0x807f|uint16(is)<<7)
		}
	}
	if !found {
		t.Fatalf("no tensor %q", part)
	}
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}
