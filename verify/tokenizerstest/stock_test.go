//go:build tokenizers

package tokenizerstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/venv"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/parity"
)

// patience bounds one engine's work on one tokenizer. The engine is slow on some: it searches texts for every added token and
// joins pieces in quadratic time. What it did not come to is not counted.
var patience = flag.Duration("patience", 5*time.Minute, "how long an engine may work on a tokenizer")

// pack is the tokenizer as a package carries it.
func pack(tok *tokenizer.Tokenizer) ([]byte, error) {
	b, _, err := tok.MTOK(tokenizer.MTOKOptions{Prefix: tok.PrefixIDs(), Special: tok.SpecialIDs()})
	return b, err
}

// engines are the folders of the installed engines, and a package to load.
func engines(t *testing.T) (dirs []string, pkg string) {
	dirs, err := venv.Engines(root)
	if err != nil {
		t.Skip(err)
	}
	if pkg = os.Getenv("LLMEXPORT_PACKAGE"); pkg == "" {
		pkg = filepath.Join(root, "dist", "tiny-qwen3-int4")
	}
	if _, err := os.Stat(pkg); err != nil {
		t.Skipf("no package to load: run make demo: %v", err)
	}
	return dirs, pkg
}

// TestEngines compares the emulated engine with every installed one, on every tokenizer that can be packed. Its results are
// the stock columns of docs/internals/tokenizers.json.
func TestEngines(t *testing.T) {
	dirs, pkg := engines(t)
	for _, e := range readReference(t).Tokenizers {
		t.Run(e.Name, func(t *testing.T) {
			b, err := os.ReadFile(e.path(t))
			if err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.Load(b)
			if err != nil {
				t.Skip(err)
			}
			packed, err := pack(tok)
			if errors.Is(err, tensor.ErrUnsupported) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			emulated, err := engine.Open(packed)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "tokenizer.mtok")
			if err := os.WriteFile(file, packed, 0o666); err != nil {
				t.Fatal(err)
			}
			for _, dir := range dirs {
				release := venv.Release(dir)
				t.Run(release, func(t *testing.T) {
					c := stock(t, dir, pkg, file, emulated)
					if !*measuring {
						return
					}
					keep(t, func(m *measured) {
						p := m.Tokenizers[e.Name]
						if p == nil {
							t.Fatalf("%s lacks %s: run TestTokenizers with -measure first", measuredFile, e.Name)
						}
						if p.Stock == nil {
							p.Stock = map[string]count{}
						}
						p.Stock[release] = c
					})
				})
			}
		})
	}
}

// stock compares the emulated engine with the one installed in dir.
func stock(t *testing.T, dir, pkg, mtok string, emulated *engine.Tokenizer) count {
	var strs []parity.String
	byText, ids := map[string][]int32{}, engineIDs(t, filepath.Join(dir, "bin", "python"), pkg, mtok)
	for i, s := range parity.Corpus() {
		if list, ok := ids[i]; ok {
			strs, byText[s.Text] = append(strs, s), list
		}
	}
	r := parity.Compare(emulated.Encode, func(s string) []int32 { return byText[s] }, strs, runtime.GOMAXPROCS(0))
	report(t, "emulated and stock engine", r)
	return counted(r)
}

// engineIDs lets an engine encode the corpus, as far as it comes in time. Ids are by the number of the string.
func engineIDs(t *testing.T, python, pkg, mtok string) map[int][]int32 {
	result := filepath.Join(t.TempDir(), "ids")
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	corpus := filepath.Join(root, "runtime", "tokenizer", "parity", "corpus.jsonl.gz")
	text, err := exec.CommandContext(ctx, python, "stock.py", pkg, corpus, mtok, result).CombinedOutput()
	if err != nil && ctx.Err() == nil {
		t.Fatalf("%s: %v\n%s", python, err, text)
	}
	b, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[int][]int32{}
	for line := range bytes.Lines(b) {
		var list []int32
		// The last line is incomplete when time is up.
		if json.Unmarshal(line, &list) == nil && len(list) > 0 {
			ids[int(list[0])] = list[1:]
		}
	}
	if ctx.Err() != nil {
		t.Logf("the time was up after %d strings", len(ids))
	}
	if len(ids) == 0 {
		t.Fatalf("no ids in %v", *patience)
	}
	return ids
}
