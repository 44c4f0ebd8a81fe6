package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

var (
	nodesDir = flag.String("nodes", "", "write the files and texts of TestEngineNodes into this folder")
	recorded = flag.String("recorded", "", "make the goldens of TestEngineNodes from this file of ids")
)

// nodeGolden is testdata/enginenodes.json. TestTokenizerNodes of verify/enginetest records it with the newest of the
// stock engines, MNN 3.6.1 when it was written, and compares the older ones too.
type nodeGolden struct {
	Texts string // digest of all texts
	Cases map[string]nodeCase
}

type nodeCase struct {
	File string // digest
	IDs  string // digests of blocks of texts
}

const textsInBlock = 100

// nodeFile is the name of a case's file; names of cases hold characters that names of files do not.
func nodeFile(i int) string { return fmt.Sprintf("%03d.mtok", i) }

// TestEngineNodes compares Tokenizer with the real one on files with every node.
func TestEngineNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	texts := nodeTexts()
	if *nodesDir != "" || *recorded != "" {
		// The real engine takes no zero bytes from Python; none are in the texts.
		if slices.ContainsFunc(texts, func(s string) bool { return strings.IndexByte(s, 0) >= 0 }) {
			t.Fatal("a text with a zero byte")
		}
	}
	cases := nodeCases()
	names := slices.Sorted(maps.Keys(cases))
	got := nodeGolden{Texts: tokenizertest.Digest(strings.Join(texts, "\n")), Cases: map[string]nodeCase{}}
	var want nodeGolden
	var ids map[string][][]int32
	switch {
	case *recorded != "":
		b, err := os.ReadFile(*recorded)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &ids); err != nil {
			t.Fatal(err)
		}
	case *nodesDir == "":
		tokenizertest.ReadJSON(t, "enginenodes.json", &want)
		if got.Texts != want.Texts {
			t.Fatal("the texts are not those that the engine read")
		}
	}
	for i, name := range names {
		b, err := cases[name].Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if *nodesDir != "" {
			write(t, filepath.Join(*nodesDir, nodeFile(i)), b)
			continue
		}
		sum := sha256.Sum256(b)
		c := nodeCase{File: hex.EncodeToString(sum[:8])}
		var block strings.Builder
		done := func(k int, ids []int32) {
			block.WriteString(tokenizertest.JoinIDs(ids) + "\n")
			if k%textsInBlock == textsInBlock-1 || k == len(texts)-1 {
				c.IDs += tokenizertest.Digest(block.String())
				block.Reset()
			}
		}
		if ids != nil {
			all, ok := ids[nodeFile(i)]
			if !ok {
				t.Fatalf("no ids of %s", name)
			}
			for k, ids := range all {
				done(k, ids)
			}
			got.Cases[name] = c
			continue
		}
		e, err := Open(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if again, err := e.file.Marshal(); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: marshalling gives other bytes, %v", name, err)
		}
		for k, s := range texts {
			ids, err := e.TryEncode(s)
			if err != nil {
				t.Errorf("%s: %q: %v", name, s, err)
			}
			done(k, ids)
		}
		if w := want.Cases[name]; c.File != w.File {
			t.Errorf("%s: the file is not the one that the engine read", name)
		} else if c.IDs != w.IDs {
			for k := 0; k+8 <= min(len(c.IDs), len(w.IDs)); k += 8 {
				if c.IDs[k:k+8] != w.IDs[k:k+8] {
					t.Errorf("%s: ids of some text from number %d on differ from the engine's", name, k/8*textsInBlock)
				}
			}
		}
	}
	switch {
	case *nodesDir != "":
		raw := make([][]byte, len(texts))
		for i, s := range texts {
			raw[i] = []byte(s)
		}
		b, err := json.Marshal(raw)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(*nodesDir, "texts.json"), b)
	case *recorded != "":
		b, err := json.MarshalIndent(got, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		write(t, tokenizertest.Path(t, "enginenodes.json"), append(b, '\n'))
	case len(want.Cases) != len(names):
		t.Errorf("%d cases, want %d", len(names), len(want.Cases))
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}
