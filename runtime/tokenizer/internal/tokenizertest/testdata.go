// Package tokenizertest reads what the tests of the tokenizers share: the files of runtime/tokenizer/testdata, which record what
// other programs give.
package tokenizertest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Small is a tokenizer.json with three tokens; parts of it are replaced in the tests.
const Small = `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},"post_processor":null,
"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,
"byte_fallback":false,"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}}`

// Path is a file of runtime/tokenizer/testdata. Tests run in the directory of their package, which is that one or lies below it.
func Path(t testing.TB, name string) string {
	t.Helper()
	for up := "."; len(up) < len("../../.."); up = filepath.Join(up, "..") {
		path := filepath.Join(up, "testdata", filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("testdata/%s does not exist", name)
	return ""
}

// ReadFile reads a file of testdata.
func ReadFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(Path(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ReadJSON reads a file of testdata.
func ReadJSON(t testing.TB, name string, v any) {
	t.Helper()
	if err := json.Unmarshal(ReadFile(t, name), v); err != nil {
		t.Fatal(err)
	}
}

// Corpus is more than 2,000 texts that are hard to cut.
func Corpus(t testing.TB) (texts []string) {
	t.Helper()
	ReadJSON(t, "corpus.json", &texts)
	if len(texts) < 2000 {
		t.Fatalf("%d texts in the corpus", len(texts))
	}
	return texts
}

// Fixture is a tokenizer.json of testdata, or that of tiny-qwen3.
func Fixture(t testing.TB, base string) []byte {
	t.Helper()
	if base != "tiny-qwen3" {
		return ReadFile(t, base+".tokenizer.json")
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(Path(t, "corpus.json")), "..", "..", "..", "testdata", base, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Patched replaces top-level parts of a tokenizer.json.
func Patched(t testing.TB, base []byte, parts map[string]json.RawMessage) []byte {
	t.Helper()
	var file map[string]json.RawMessage
	if err := json.Unmarshal(base, &file); err != nil {
		t.Fatal(err)
	}
	for k, v := range parts {
		file[k] = v
	}
	b, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// SmallCase is a small tokenizer with random settings and digests of what the Python library gave; see testdata/models.py.
type SmallCase struct {
	File         json.RawMessage
	IDs, Special string    // ids of all texts, without and with those of the post-processor
	Decode       [][]int32 // ids to decode
	Texts        string    // what these give, with and without special tokens
}

// SmallCases are those of models.json, and the texts of their digests.
func SmallCases(t testing.TB) (texts []string, cases []SmallCase) {
	t.Helper()
	var file struct {
		Texts []string
		Cases []SmallCase
	}
	ReadJSON(t, "models.json", &file)
	if len(file.Texts) < 100 || len(file.Cases) < 80 {
		t.Fatalf("%d cases with %d texts", len(file.Cases), len(file.Texts))
	}
	return file.Texts, file.Cases
}

// Seeds are small files with all the components of the golden tests: a fuzzer makes little of large ones.
func Seeds(f *testing.F) [][]byte {
	f.Helper()
	var all map[string]struct{ Parts map[string]json.RawMessage }
	ReadJSON(f, "ids.json", &all)
	out := [][]byte{[]byte(Small)}
	for _, g := range all {
		if len(g.Parts) > 0 {
			out = append(out, Patched(f, []byte(Small), g.Parts))
		}
	}
	// Components without the vocabulary that they come with.
	for _, base := range []string{"llama3", "qwen"} {
		var file map[string]json.RawMessage
		if err := json.Unmarshal(Fixture(f, base), &file); err != nil {
			f.Fatal(err)
		}
		out = append(out, Patched(f, []byte(Small), map[string]json.RawMessage{
			"normalizer": file["normalizer"], "pre_tokenizer": file["pre_tokenizer"],
			"added_tokens":   json.RawMessage(`[{"id":3,"content":"<x>","single_word":false,"lstrip":true,"rstrip":true,"normalized":true,"special":true}]`),
			"post_processor": json.RawMessage(strings.ReplaceAll(string(file["post_processor"]), "903", "3")),
			"model":          json.RawMessage(`{"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`),
		}))
	}
	if len(out) < 10 {
		f.Fatalf("only %d seeds", len(out))
	}
	_, cases := SmallCases(f)
	for _, c := range cases {
		out = append(out, c.File)
	}
	return out
}

// JoinIDs spells ids as the scripts of testdata do before they take a digest.
func JoinIDs(ids []int32) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(id)))
	}
	return b.String()
}

// Digest is the digest of the scripts, the first four bytes of a SHA-256.
func Digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}
