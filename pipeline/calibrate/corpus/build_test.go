package corpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// dir writes files and returns options that find them: a token is a letter, | ends a text, a conversation is rendered
// as <role:content>.
func dir(t testing.TB, files map[string]string) Options {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Options{
		Encode: func(s string) ([]int32, error) { return letters(s), nil },
		Render: func(list []Message) (string, error) {
			s := ""
			for _, m := range list {
				s += "<" + m.Role + ":" + m.Content + ">"
			}
			return s, nil
		},
		EndOfText: '|',
		Resolve:   func(path string) string { return filepath.Join(root, path) },
	}
}

func jsonl(texts ...string) string {
	var b strings.Builder
	for _, s := range texts {
		fmt.Fprintf(&b, "{\"text\":%q}\n", s)
	}
	return b.String()
}

// numbered makes n texts of the given length that say their number.
func numbered(name string, n, length int) []string {
	texts := make([]string, n)
	for i := range texts {
		s := fmt.Sprintf("%s%d.", name, i)
		texts[i] = s + strings.Repeat("x", length-len(s))
	}
	return texts
}

func TestBuild(t *testing.T) {
	small := map[string]string{
		"a.jsonl":    jsonl(numbered("a", 8, 12)...),
		"b.txt":      strings.Join(numbered("b", 4, 25), "\n\n\n"),
		"chat.jsonl": strings.Repeat(`{"messages":[{"role":"u","content":"hello there"},{"role":"a","content":"b"}]}`+"\n", 2),
		"short.txt":  "only this",
		"crlf.txt":   "one\r\ntwo\r\n\r\n\r\nthree four\n",
	}
	for name, tc := range map[string]struct {
		list     []Data
		tokens   int
		change   func(o *Options)
		want     string // windows by domain, separated by " / "
		warnings []string
	}{
		"spread evenly": {
			list: []Data{{Path: "a.jsonl"}}, tokens: 40,
			want: "a0.xxxxxxx a2.xxxxxxx a4.xxxxxxx a6.xxxxxxx",
		},
		"another seed": {
			list: []Data{{Path: "a.jsonl"}}, tokens: 40, change: func(o *Options) { o.Seed = 2 },
			want: "a1.xxxxxxx a3.xxxxxxx a5.xxxxxxx a7.xxxxxxx",
		},
		"all": {
			list: []Data{{Path: "a.jsonl"}}, tokens: 89,
			want: "a0.xxxxxxx a1.xxxxxxx a2.xxxxxxx a3.xxxxxxx a4.xxxxxxx a5.xxxxxxx a6.xxxxxxx a7.xxxxxxx",
		},
		"more than begin a document": {
			list: []Data{{Path: "a.jsonl"}}, tokens: 90,
			want: "a0.xxxxxxx xx|a1.xxxx xxxxx|a2.x xxxxxxxx|a 3.xxxxxxxx x|a4.xxxxx xxxx|a5.xx .xxxxxxxxx a7.xxxxxxx",
		},
		"long documents continue": {
			list: []Data{{Path: "b.txt"}}, tokens: 80,
			want: "b0.xxxxxxx xxxxxxxxxx b1.xxxxxxx xxxxxxxxxx b2.xxxxxxx xxxxxxxxxx b3.xxxxxxx xxxxxxxxxx",
		},
		"by weight": {
			list: []Data{{Path: "a.jsonl", Weight: 3}, {Path: "b.txt"}}, tokens: 40,
			want: "a0.xxxxxxx a3.xxxxxxx a5.xxxxxxx / xxxxxxxxxx",
		},
		"chat": {
			list: []Data{{Path: "chat.jsonl", Chat: true}}, tokens: 20,
			want: "<u:hello t <u:hello t",
		},
		"chats joined": {
			list: []Data{{Path: "chat.jsonl", Chat: true}}, tokens: 30, change: func(o *Options) { o.Window = 30 },
			want: "<u:hello there><a:b><u:hello t",
		},
		"prefix": {
			list: []Data{{Path: "a.jsonl"}}, tokens: 20, change: func(o *Options) { o.Prefix = letters("^^") },
			want: "^^a0.xxxxx ^^a4.xxxxx",
		},
		"no end-of-text token": {
			list: []Data{{Path: "short.txt"}, {Path: "crlf.txt"}}, tokens: 20, change: func(o *Options) { o.EndOfText = -1 },
			want: " / one\r\ntwo\n\n three four", warnings: []string{
				"short.txt: fills 0 of 1 windows with its 9 tokens",
				"crlf.txt: 1 of 2 documents have CRLF line ends, which are kept; text with LF gives different tokens",
			},
		},
		"too short a domain": {
			list: []Data{{Path: "short.txt", Weight: 2}, {Path: "a.jsonl"}, {Path: "b.txt"}}, tokens: 40,
			want: " / a0.xxxxxxx a4.xxxxxxx / xxxxxxxxxx xxxxxxxxxx",
			warnings: []string{
				"short.txt: fills 0 of 2 windows with its 9 tokens",
			},
		},
		"too little of everything": {
			list: []Data{{Path: "b.txt"}, {Path: "short.txt"}}, tokens: 300,
			warnings: []string{
				"b.txt: fills 10 of 15 windows with its 100 tokens",
				"short.txt: fills 0 of 15 windows with its 9 tokens",
				"the data fills 10 of 30 windows: 100 of 300 tokens",
			},
			want: "b0.xxxxxxx xxxxxxxxxx xxxxx|b1.x xxxxxxxxxx xxxxxxxxxx x|b2.xxxxx xxxxxxxxxx xxxxxxx|b3 .xxxxxxxxx xxxxxxxxxx / ",
		},
		"too few windows": {
			list: []Data{{Path: "a.jsonl"}, {Path: "b.txt"}}, tokens: 10,
			want:     "a1.xxxxxxx / ",
			warnings: []string{"b.txt: no window, because its share of 1 windows is less than one"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := dir(t, small)
			o.Tokens, o.Window = tc.tokens, 10
			if tc.change != nil {
				tc.change(&o)
			}
			c, err := Build(t.Context(), tc.list, o)
			if err != nil {
				t.Fatal(err)
			}
			var parts []string
			left := c.Windows
			for _, d := range c.Domains {
				parts = append(parts, spell(left[:d.Windows]))
				left = left[d.Windows:]
			}
			if d := cmp.Diff(tc.want, strings.Join(parts, " / ")); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tc.warnings, c.Warnings); d != "" {
				t.Error(d)
			}
			if err := c.validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	sum := digest.Of([]byte("some text")).Hex()
	other := strings.Repeat("0", 64)
	files := map[string]string{
		"a.txt": "some text", "b.txt": "some text", "empty.txt": "", "blank.txt": " \n", "bad.txt": "a\xff", "x.csv": "a",
		"chat.jsonl": `{"messages":[{"role":"u","content":"a"}]}`, "bad.parquet": "PAR1 but nothing else",
	}
	for name, tc := range map[string]struct {
		list   []Data
		change func(o *Options)
		want   string
		is     error
	}{
		"none":         {nil, nil, "no calibration data", nil},
		"no path":      {[]Data{{}}, nil, "without a path", nil},
		"missing":      {[]Data{{Path: "no.txt"}}, nil, "no.txt: ", fs.ErrNotExist},
		"directory":    {[]Data{{Path: ".", Format: "text"}}, nil, ".: not a regular file", nil},
		"empty":        {[]Data{{Path: "empty.txt"}}, nil, "empty.txt: the file is empty", nil},
		"blank":        {[]Data{{Path: "blank.txt"}}, nil, "blank.txt: the file holds no text", nil},
		"digest":       {[]Data{{Path: "a.txt", SHA256: other}}, nil, "a.txt: the file has SHA-256 " + sum + ", not " + other, tensor.ErrCorrupt},
		"no digest":    {[]Data{{Path: "a.txt", SHA256: "12"}}, nil, `a.txt: sha256 "12" is not 64`, nil},
		"extension":    {[]Data{{Path: "x.csv"}}, nil, `x.csv: the extension ".csv" names no known format; set format to one of json, jsonl, parquet, text`, nil},
		"format":       {[]Data{{Path: "x.csv", Format: "csv"}}, nil, `x.csv: unknown format "csv"`, nil},
		"weight":       {[]Data{{Path: "a.txt", Weight: -1}}, nil, "a.txt: weight -1 is not between", nil},
		"NaN":          {[]Data{{Path: "a.txt", Weight: math.NaN()}}, nil, "a.txt: weight NaN", nil},
		"chat of text": {[]Data{{Path: "a.txt", Chat: true}}, nil, "a.txt: a text holds no conversations", nil},
		"column":       {[]Data{{Path: "a.txt", Column: "a"}}, nil, "a.txt: a text has no columns", nil},
		"not UTF-8":    {[]Data{{Path: "bad.txt"}}, nil, "bad.txt: not UTF-8 at byte 1", tensor.ErrCorrupt},
		"parquet":      {[]Data{{Path: "bad.parquet"}}, nil, "bad.parquet: parquet: the file ends with", tensor.ErrCorrupt},
		"twice":        {[]Data{{Path: "a.txt"}, {Path: "b.txt"}}, nil, "a.txt and b.txt are the same calibration data", nil},
		"too few":      {[]Data{{Path: "a.txt"}}, nil, "the calibration data has 9 tokens, too few for one window of 10", nil},
		"no template": {[]Data{{Path: "chat.jsonl", Chat: true}}, func(o *Options) { o.Render = nil },
			"chat.jsonl: the file holds conversations, and the model has no chat template", nil},
		"bad template": {[]Data{{Path: "chat.jsonl", Chat: true}}, func(o *Options) {
			o.Render = func([]Message) (string, error) { return "", errors.New("roles must alternate") }
		}, "chat.jsonl: line 1: chat template: roles must alternate", nil},
		"bad tokenizer": {[]Data{{Path: "a.txt"}}, func(o *Options) { o.Encode = func(string) ([]int32, error) { return nil, errors.New("no") } }, "a.txt: no", nil},
		"window":        {[]Data{{Path: "a.txt"}}, func(o *Options) { o.Prefix = make([]int32, 10) }, "windows of 10 tokens leave no room", nil},
		"tokens":        {[]Data{{Path: "a.txt"}}, func(o *Options) { o.Tokens = 9 }, "9 tokens of calibration data are less than one window of 10", nil},
		"too many":      {[]Data{{Path: "a.txt"}}, func(o *Options) { o.Tokens = maxTokens + 1 }, "the limit is", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := dir(t, files)
			o.Tokens, o.Window = 20, 10
			if tc.change != nil {
				tc.change(&o)
			}
			c, err := Build(t.Context(), tc.list, o)
			if err == nil || c != nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v, want %s", err, tc.want)
			}
			if errors.Is(err, tensor.ErrCorrupt) && tc.is == nil {
				t.Errorf("%v: corrupt", err)
			}
		})
	}
}

// A file much larger than its share is sampled: from all over it, beginning with documents, and not tokenized whole.
func TestBuildSamples(t *testing.T) {
	const window = 64
	for name, tc := range map[string]struct {
		file, text string
		begins     bool // every window begins with a document
	}{
		"short documents": {"a.jsonl", jsonl(numbered("a", 20000, 40)...), true},
		"documents":       {"a.jsonl", jsonl(numbered("a", 2000, 400)...), false},
		"long documents":  {"a.txt", strings.Join(numbered("a", 8, 100_000), "\n\n\n"), false},
		"one document":    {"a.txt", strings.Join(numbered("a", 20000, 40), "\n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			o := dir(t, map[string]string{tc.file: tc.text})
			o.Tokens, o.Window = 8*window, window
			encoded, from := 0, map[int]bool{}
			offset := strings.NewReplacer("\n", "")
			whole := offset.Replace(tc.text)
			o.Encode = func(s string) ([]int32, error) {
				encoded += len(s)
				if at := strings.Index(whole, offset.Replace(s)); at >= 0 {
					from[at*8/len(whole)] = true
				}
				return letters(s), nil
			}
			c, err := Build(t.Context(), []Data{{Path: tc.file}}, o)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Windows) != 8 || c.Warnings != nil {
				t.Errorf("%d windows, %v", len(c.Windows), c.Warnings)
			}
			if limit := 8 * window * sampleBytes; encoded > limit+2*window*pieceBytes || encoded < limit/2 {
				t.Errorf("%d bytes tokenized of %d, want about %d", encoded, len(tc.text), limit)
			}
			if len(from) != 8 && name != "long documents" {
				t.Errorf("taken from the eighths %v", from)
			}
			begin := 0
			for _, w := range c.Windows {
				if w[0] == 'a' {
					begin++
				}
			}
			if tc.begins && begin != 8 {
				t.Errorf("%d of 8 windows begin with a document", begin)
			}
		})
	}
}

func TestBuildStops(t *testing.T) {
	o := dir(t, map[string]string{"a.jsonl": jsonl(numbered("a", 100, 40)...)})
	o.Tokens, o.Window = 100, 10
	ctx, cancel := context.WithCancel(t.Context())
	o.Encode = func(s string) ([]int32, error) { cancel(); return letters(s), nil }
	if _, err := Build(ctx, []Data{{Path: "a.jsonl"}}, o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// tiny is the tokenizer of a small model and its chat template, spelled out.
func tiny(t testing.TB) Options {
	b, err := os.ReadFile("../../../testdata/tiny-qwen3/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	end, ok := tok.ID("<|endoftext|>")
	if !ok {
		t.Fatal("no end of text")
	}
	return Options{
		EndOfText: end,
		Prefix:    tok.PrefixIDs(),
		Encode:    func(s string) ([]int32, error) { return tok.Encode(s, false), nil },
		Render: func(list []Message) (string, error) {
			s := ""
			for _, m := range list {
				s += "<|im_start|>" + m.Role + "\n" + m.Content + "<|im_end|>\n"
			}
			return s, nil
		},
		Resolve: func(path string) string { return filepath.Join("testdata", path) },
	}
}

// The digests hold ids still: a recipe means the same windows on every machine and in every release.
func TestGoldens(t *testing.T) {
	for name, tc := range map[string]struct {
		list           []Data
		tokens, window int
		digest         digest.Digest
	}{
		"text":    {[]Data{{Path: "prose.txt"}}, 256, 64, "sha256:95ffccadf7d709a70d03176ceb994d5e9a8c221d3ae19d1937771f7f1b01a110"},
		"parquet": {[]Data{{Path: "snappy.parquet"}}, 320, 32, "sha256:c98149eaedd905c20349eb61c04ea5fe446408ceb1a6bb0e421f11026a64725b"},
		"mix": {[]Data{
			{Path: "prose.txt", Weight: 2}, {Path: "snappy.parquet"}, {Path: "chat-zstd.parquet", Chat: true}, {Path: "share-gzip-v2.parquet", Chat: true, Weight: 0.5},
		}, 640, 32, "sha256:167a7e112293402cd3ca8056c52136147788edd6d87f3a5730571b73f3dffdc2"},
		"everything": {[]Data{{Path: "prose.txt"}, {Path: "chat-zstd.parquet", Chat: true}}, 100_000, 48,
			"sha256:dae6a04fd2ece8d67c78147e87e656c83425abff2a8f0e2220f58e7e485eddc6"},
	} {
		t.Run(name, func(t *testing.T) {
			o := tiny(t)
			o.Tokens, o.Window, o.Seed = tc.tokens, tc.window, 7
			c, err := Build(t.Context(), tc.list, o)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Digest(); got != tc.digest {
				t.Errorf("%s, want %s", got, tc.digest)
			}
			again, err := Build(t.Context(), tc.list, o)
			if err != nil || !cmp.Equal(c, again) {
				t.Errorf("a second time: %v, %s", err, cmp.Diff(c, again))
			}
			var b bytes.Buffer
			if err := c.Save(&b); err != nil {
				t.Fatal(err)
			}
			back, err := Load(&b)
			if err != nil || !cmp.Equal(c, back) {
				t.Errorf("loaded: %v, %s", err, cmp.Diff(c, back))
			}
		})
	}
}

// Every window holds what the tokenizer gives for a document from its beginning.
func TestWindowsAreDocuments(t *testing.T) {
	o := tiny(t)
	o.Tokens, o.Window = 10*16, 16
	b, err := os.ReadFile("testdata/snappy.parquet")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := passages(Data{Format: "parquet"}, b)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Build(t.Context(), []Data{{Path: "snappy.parquet"}}, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range c.Windows {
		n := slices.Index(w, o.EndOfText)
		if n < 0 {
			n = len(w)
		}
		begins := func(s string) bool {
			tokens, err := o.Encode(s)
			return err == nil && len(tokens) >= n && slices.Equal(tokens[:n], w[:n])
		}
		if !slices.ContainsFunc(texts, begins) {
			t.Errorf("window %d begins with no document: %v", i, w)
		}
	}
}
