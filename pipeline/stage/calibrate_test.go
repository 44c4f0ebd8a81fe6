package stage_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/calibrate/corpus"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/recipes"
)

// writeTexts writes a text and conversations next to a recipe.
func writeTexts(t *testing.T, dir string) {
	t.Helper()
	var prose, chats bytes.Buffer
	for i := range 60 {
		fmt.Fprintf(&prose, "The %d travellers came to a town where nobody knew them, and asked for bread.\nThey were given %d loaves.\n\n\n", i+2, 3*i)
		fmt.Fprintf(&chats, `{"messages": [{"role": "user", "content": "How many is %d and %d?"}, {"role": "assistant", "content": "It is %d, as anybody can count."}]}`+"\n", i, 7*i, 8*i)
	}
	for name, b := range map[string][]byte{"prose.txt": prose.Bytes(), "chats.jsonl": chats.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// Text of all sources is shared by weight; conversations are written down by the model's template; the recipe in the
// package names the files and not where they lie.
func TestCalibrationSources(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, tiny, "calibrate: {tokens: 1024, window: 64, probe: 256, "+
		"data: [samples, {path: texts/prose.txt, weight: 1}, {path: texts/chats.jsonl, chat: true, weight: 2}]}\n"+
		"quantize: {method: gptq}\n"+unverified)
	texts := filepath.Join(w.dir, "texts")
	if err := os.Mkdir(texts, 0o777); err != nil {
		t.Fatal(err)
	}
	writeTexts(t, texts)
	var log bytes.Buffer
	if _, err := stagetest.Run(zerolog.New(zerolog.SyncWriter(&log)).WithContext(t.Context()), w.recipe(), w.cache(), 2); err != nil {
		t.Fatal(err)
	}
	c := writtenCorpus(t, w)
	var got []string
	for _, d := range c.Domains {
		got = append(got, fmt.Sprintf("%s %s %d of %g", d.Name, d.Format, d.Windows, d.Weight))
	}
	if diff := cmp.Diff([]string{"prose.txt text 5 of 1", "chats.jsonl jsonl 10 of 2", "samples samples 5 of 1"}, got); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}
	src, err := source.Open(t.Context(), source.Origin{Dir: tiny}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	begin, ok := src.Tokenizer.ID("<|im_start|>")
	for i, x := range c.Windows {
		if chat := i >= 5 && i < 15; len(x) != 64 || !ok || (x[0] == begin) != chat || slices.Contains(x, begin) != chat {
			t.Errorf("window %d: %d tokens, %q", i, len(x), src.Tokenizer.Decode(x, false))
		}
	}

	// 1024 tokens are less than twice the 768 columns of down_proj.
	const few = "1024 tokens are few for matrices of 768 columns: below 1536"
	report, err := os.ReadFile(filepath.Join(w.out(), "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), few) || !strings.Contains(string(report), few) {
		t.Errorf("no warning of too little text:\n%s\n%s", log.String(), report)
	}
	stored, err := os.ReadFile(filepath.Join(w.out(), "recipe.json"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(stored), "texts/") || !strings.Contains(string(stored), "prose.txt") || !strings.Contains(string(stored), "chats.jsonl") {
		t.Errorf("stored recipe: %s", stored)
	}

	// The stored recipe is enough to make the same package again, given the files.
	if err := os.WriteFile(filepath.Join(texts, "recipe.yaml"), stored, 0o666); err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs(tiny)
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(w.dir, "again")
	if _, err := stagetest.Run(t.Context(), filepath.Join(texts, "recipe.yaml"), w.cache(), 2,
		"publish=[{dir: "+filepath.ToSlash(again)+"}]", "model.path="+filepath.ToSlash(source)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(listing(t, w.out()), listing(t, again)); diff != "" {
		t.Errorf("packages (-first +again):\n%s", diff)
	}
}

// More text than the columns ask for gives no warning, and a recipe that needs no text carries none.
func TestCalibrationUnasked(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, tiny, "calibrate: {tokens: 1536, window: 64, probe: 64}\nquantize: {method: rtn}\n"+unverified)
	w.must(t)
	stored, err := os.ReadFile(filepath.Join(w.out(), "recipe.json"))
	if err != nil || strings.Contains(string(stored), "calibrate") {
		t.Errorf("stored recipe: %s, %v", stored, err)
	}
	if err := os.RemoveAll(w.out()); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if _, err := stagetest.Run(zerolog.New(zerolog.SyncWriter(&log)).WithContext(t.Context()), w.recipe(), w.cache(), 2, "quantize.method=gptq"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "tokens are few") {
		t.Errorf("warned:\n%s", log.String())
	}
}

// Files of calibration data are looked through before anything is made, where a method needs them.
func TestBadData(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, c := range []struct{ name, data, key, text string }{
		{"missing", "absent.txt", "calibrate.data[0]", "no such file"},
		{"a directory", "dir.txt", "calibrate.data[0]", "regular"},
		{"empty", "empty.txt", "calibrate.data[0]", "empty"},
		{"nothing but space", "space.txt", "calibrate.data[0]", "no text"},
		{"not UTF-8", "latin.txt", "calibrate.data[0]", "UTF-8"},
		{"no parquet", "broken.parquet", "calibrate.data[0]", "broken.parquet"},
		{"parquet without the column", "{path: share.parquet, column: prose}", "calibrate.data[0]", "prose"},
		{"lines without the column", "chats.jsonl", "calibrate.data[0]", "text"},
		{"another digest", "{path: prose.txt, sha256: \"" + strings.Repeat("0", 64) + "\"}", "calibrate.data[0]", "SHA-256"},
		{"the second file", "prose.txt, empty.txt", "calibrate.data[1]", "empty.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWork(t, tiny, "quantize: {method: gptq}\ncalibrate: {tokens: 1024, window: 64, probe: 256, data: ["+c.data+"]}\n"+unverified)
			writeTexts(t, w.dir)
			parquet, err := os.ReadFile("../calibrate/corpus/testdata/snappy.parquet")
			if err != nil {
				t.Fatal(err)
			}
			for name, b := range map[string][]byte{
				"empty.txt": nil, "space.txt": []byte(" \n\n"), "latin.txt": []byte("d\xe9j\xe0 vu"), "broken.parquet": []byte("PAR1"), "share.parquet": parquet,
			} {
				if err := os.WriteFile(filepath.Join(w.dir, name), b, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(w.dir, "dir.txt"), 0o777); err != nil {
				t.Fatal(err)
			}
			_, err = w.run(t)
			var at *recipes.Error
			if !errors.As(err, &at) || at.Line != 5 || !strings.HasPrefix(at.Message, c.key+": ") || !strings.Contains(at.Message, c.text) {
				t.Errorf("%v, want %s with %q", err, c.key, c.text)
			} else {
				t.Log(at)
			}
			nothing(t, w)
			// No method needs the text.
			w.must(t, "quantize.method=rtn")
		})
	}
}

// Too little text, and conversations for a model without a template, show when the model is there.
func TestUnfitData(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	plain := checkpoint{t, t.TempDir()}
	for _, n := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
		b, err := os.ReadFile(families + "qwen3-untied/" + n)
		if err != nil {
			t.Fatal(err)
		}
		plain.write(n, string(b))
	}
	for _, c := range []struct{ name, checkpoint, data, key, text string }{
		{"less than the probe", tiny, "prose.txt", "calibrate.data", "the probe alone needs"},
		{"no template", plain.dir, "{path: chats.jsonl, chat: true}", "calibrate.data[0].chat", "no chat template"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWork(t, c.checkpoint, "quantize: {method: gptq, block: 32}\ncalibrate: {tokens: 1024, window: 64, probe: 100000, data: ["+c.data+"]}\n"+unverified)
			writeTexts(t, w.dir)
			_, err := w.run(t)
			var at *recipes.Error
			if !errors.As(err, &at) || at.Line != 5 || !strings.HasPrefix(at.Message, c.key+": ") || !strings.Contains(at.Message, c.text) {
				t.Errorf("%v, want %s with %q", err, c.key, c.text)
			}
			nothing(t, w)
		})
	}
}

// writtenCorpus is the calibration corpus that the one run of w has written.
func writtenCorpus(t *testing.T, w work) *corpus.Corpus {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(w.cache(), "calibration-*", "corpus.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	f, err := os.Open(names[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := corpus.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
