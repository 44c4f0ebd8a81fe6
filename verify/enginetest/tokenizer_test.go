//go:build engine

package enginetest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	tokens "github.com/llmexport/llmexport/runtime/tokenizer/engine"
)

// TestTokenizerNodes: engine.Tokenizer gives the ids of the engine for every node of the format, on any bytes, and
// prints what the engine prints. With LLMEXPORT_RECORD=1 the digests of the newest engine's ids become the goldens of
// its package.
func TestTokenizerNodes(t *testing.T) {
	t.Parallel()
	const dir = "../../runtime/tokenizer/engine"
	files := t.TempDir()
	if out, err := exec.Command("go", "test", "-count=1", "-run=TestEngineNodes$", dir, "-nodes", files).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(files, "texts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var texts [][]byte
	if err := json.Unmarshal(b, &texts); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(files, "*.mtok"))
	if err != nil || len(names) < 100 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	pkg := export(t, checkpoints(t, false)[0], form{engine: "3.5", bits: 4, table: 8, block: "64"})
	recorded := map[string][][]int32{}
	for _, e := range engines(t) {
		compared := 0
		for _, name := range names {
			file, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := tokens.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			if e.version < ours.Since() {
				continue
			}
			if err := os.WriteFile(filepath.Join(pkg, "tokenizer.mtok"), file, 0o644); err != nil {
				t.Fatal(err)
			}
			a, err := e.do(job{Package: pkg, Bytes: texts, Decode: ours.VocabSize() + 2})
			if err != nil {
				t.Errorf("%s: %v", filepath.Base(name), err)
				continue
			}
			bad := 0
			for i, text := range texts {
				if got := ours.Encode(string(text)); !slices.Equal(got, a.IDs[i]) {
					if bad++; bad < 4 {
						t.Errorf("engine %s, %s: %q gives %v, want %v", e.version, filepath.Base(name), text, got, a.IDs[i])
					}
				}
			}
			for i, want := range a.Prints {
				got, _, _ := strings.Cut(ours.Decode([]int32{int32(i - 2)}), "\x00") // the binding ends there
				if want == nil && utf8.ValidString(got) || want != nil && got != *want {
					t.Errorf("engine %s, %s: id %d prints %q", e.version, filepath.Base(name), i-2, got)
				}
			}
			compared += len(texts)
			recorded[filepath.Base(name)] = a.IDs
		}
		t.Logf("engine %s: %d texts compared", e.version, compared)
	}
	if os.Getenv("LLMEXPORT_RECORD") == "" || t.Failed() {
		return
	}
	if b, err = json.Marshal(recorded); err != nil {
		t.Fatal(err)
	}
	ids := filepath.Join(files, "ids.json")
	if err := os.WriteFile(ids, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "-count=1", "-run=TestEngineNodes$", dir, "-recorded", ids).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
