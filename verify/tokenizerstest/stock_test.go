//go:build tokenizers

package tokenizerstest

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/parity"
)

// stock compares every installed engine with the emulated one. Its binding takes no text with U+0000, nor one that is
// not UTF-8.
func stock(t *testing.T, packed []byte, emulated *tokenizer.Engine) map[string]count {
	dirs, err := filepath.Glob(filepath.Join(root, ".venv", "mnn-*"))
	if err != nil || len(dirs) == 0 {
		t.Fatal("no engine in .venv/mnn-<release>: run make engine-venvs")
	}
	sort.Strings(dirs)
	pkg := os.Getenv("LLMEXPORT_PACKAGE")
	if pkg == "" {
		pkg = filepath.Join(root, "dist", "tiny-qwen3-int4")
	}
	file := filepath.Join(t.TempDir(), "tokenizer.mtok")
	if err := os.WriteFile(file, packed, 0o666); err != nil {
		t.Fatal(err)
	}
	var strs []parity.String
	for _, s := range parity.Corpus() {
		if utf8.ValidString(s.Text) && !strings.ContainsRune(s.Text, 0) {
			strs = append(strs, s)
		}
	}
	out := map[string]count{}
	for _, d := range dirs {
		release := strings.TrimPrefix(filepath.Base(d), "mnn-")
		ids := run(t, filepath.Join(d, "bin", "python"), pkg, file, len(strs))
		byText := map[string][]int32{}
		for i, s := range strs {
			byText[s.Text] = ids[i]
		}
		out[release] = counted(parity.Compare(emulated.Encode, func(s string) []int32 { return byText[s] }, strs, 1))
		if r := parity.Compare(emulated.Encode, func(s string) []int32 { return byText[s] }, strs, 1); r.Plain.Different+r.Hard.Different > 0 {
			report(t, "emulated and stock engine "+release, r)
		}
	}
	return out
}

// run lets an engine encode the corpus. What it prints itself goes to standard error.
func run(t *testing.T, python, pkg, mtok string, n int) [][]int32 {
	t.Helper()
	result := filepath.Join(t.TempDir(), "ids")
	cmd := exec.Command(python, "stock.py", pkg, filepath.Join(root, "runtime", "tokenizer", "parity", "corpus.jsonl.gz"), mtok, result)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", python, err, text)
	}
	f, err := os.Open(result)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReader(f))
	ids := make([][]int32, n)
	for i := range ids {
		if err := d.Decode(&ids[i]); err != nil {
			t.Fatalf("%s: string %d: %v", result, i, err)
		}
	}
	return ids
}
