//go:build tokenizers

package tokenizerstest

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
	"github.com/llmexport/llmexport/runtime/tokenizer/engine"
	"github.com/llmexport/llmexport/runtime/tokenizer/parity"
)

var (
	record    = flag.Bool("record", false, "write what the library gives into "+referenceFile)
	measuring = flag.Bool("measure", false, "write what was measured into "+measuredFile)
)

const measuredFile = "docs/internals/tokenizers.json"

// measured is docs/internals/tokenizers.json.
type measured struct {
	Library    string             `json:"library"`
	Corpus     string             `json:"corpus"`
	Tokenizers map[string]*parted `json:"tokenizers"`
}

// parted is what was measured of one tokenizer.
type parted struct {
	Source string `json:"source"`
	// Library compares ours with the library, Engine the emulated engine with ours, Stock engines of a release with the
	// emulated one.
	Library count            `json:"library"`
	Engine  count            `json:"engine"`
	Stock   map[string]count `json:"stock,omitempty"`
}

// count is the outcome of a comparison: a refusal, or differences.
type count struct {
	Refused string        `json:"refused,omitempty"`
	Plain   *parity.Count `json:"plain,omitempty"`
	Hard    *parity.Count `json:"hard,omitempty"`
	Invalid *parity.Count `json:"invalid,omitempty"`
	// Groups are those that have differences.
	Groups map[string]parity.Count `json:"groups,omitempty"`
}

func counted(r parity.Result) count {
	c := count{Plain: &r.Plain, Hard: &r.Hard, Invalid: &r.Invalid}
	for name, n := range r.Groups {
		if n.Different > 0 {
			if c.Groups == nil {
				c.Groups = map[string]parity.Count{}
			}
			c.Groups[name] = n
		}
	}
	return c
}

// readMeasured reads docs/internals/tokenizers.json.
func readMeasured(t *testing.T) *measured {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, measuredFile))
	if err != nil {
		t.Fatal(err)
	}
	var m measured
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return &m
}

// TestTokenizers holds every tokenizer to the library and to docs/internals/tokenizers.json.
func TestTokenizers(t *testing.T) {
	ref := readReference(t)
	old := readMeasured(t)
	release := ""
	all := true // every tokenizer was run, not only those that -run names
	names := map[string]bool{}
	for _, e := range ref.Tokenizers {
		if names[e.Name] {
			t.Errorf("%s is a duplicate", e.Name)
		}
		names[e.Name] = true
		ran := false
		t.Run(e.Name, func(t *testing.T) {
			ran = true
			path := e.path(t)
			rows, lib := library(t, path)
			release = lib
			s := newSum()
			for _, r := range rows {
				s.add(r)
			}
			if *record {
				e.digests = s.digests()
			} else if ref.Library != lib || ref.Corpus != parity.SHA256 {
				t.Errorf("%s is of library %s and corpus %s, these are %s and %s: run make reference", referenceFile, ref.Library, ref.Corpus, lib, parity.SHA256)
			} else if e.digests != s.digests() {
				t.Errorf("the library gives other digests than are recorded: %s", cmp.Diff(e.digests, s.digests()))
			}
			p := measure(t, path, rows)
			p.Source = e.NPM
			if p.Source == "" {
				p.Source = strings.TrimPrefix(e.Git, "https://") + "@" + e.Commit[:12] + ":" + e.File
			}
			if *measuring {
				keep(t, func(m *measured) {
					m.Library, m.Corpus = lib, parity.SHA256
					if was := m.Tokenizers[e.Name]; was != nil && p.Engine.Refused == "" {
						p.Stock = was.Stock
					}
					m.Tokenizers[e.Name] = p
				})
				return
			}
			was := old.Tokenizers[e.Name]
			if was != nil {
				p.Stock = was.Stock
			}
			if diff := cmp.Diff(was, p); diff != "" {
				t.Errorf("%s is old, rewrite it by make tokenizers-doc: %s", measuredFile, diff)
			}
		})
		all = all && ran
	}
	if *record && all {
		ref.Library, ref.Corpus, ref.Strings = release, parity.SHA256, len(parity.Corpus())
		write(t, referenceFile, ref)
	}
	if *measuring {
		keep(t, func(m *measured) {
			for name := range m.Tokenizers {
				if !names[name] {
					delete(m.Tokenizers, name)
				}
			}
		})
	}
}

// keep changes docs/internals/tokenizers.json. All of it takes long to measure, so every part is kept at once.
func keep(t *testing.T, change func(*measured)) {
	t.Helper()
	m := readMeasured(t)
	change(m)
	write(t, filepath.Join(root, measuredFile), m)
}

func write(t *testing.T, name string, v any) {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, append(b, '\n'), 0o666); err != nil {
		t.Fatal(err)
	}
}

// measure compares ours with the library's rows, and the emulated engine with ours.
func measure(t *testing.T, path string, rows []row) *parted {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b)
	if err != nil {
		if !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("load: %v", err)
		}
		return &parted{Library: count{Refused: err.Error()}, Engine: count{Refused: "not loaded"}}
	}
	workers := runtime.GOMAXPROCS(0)
	r := compare(t, tok, rows, workers)
	p := &parted{Library: counted(r)}
	packed, err := pack(tok)
	if err != nil {
		if !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("mtok: %v", err)
		}
		p.Engine.Refused = err.Error()
		return p
	}
	emulated, err := engine.Open(packed)
	if err != nil {
		t.Fatalf("mtok, read again: %v", err)
	}
	ours := func(s string) []int32 { return append(tok.PrefixIDs(), tok.Encode(s, false)...) }
	p.Engine = counted(parity.Compare(ours, emulated.Encode, parity.Corpus(), workers))
	return p
}

// compare holds a tokenizer to the library's rows; the result is that of ids without special tokens.
func compare(t *testing.T, tok *tokenizer.Tokenizer, rows []row, workers int) parity.Result {
	byText := make(map[string]*row, len(rows))
	for i, s := range parity.Corpus() {
		byText[s.Text] = &rows[i]
	}
	type encode = func(string) []int32
	r := parity.Compare(func(s string) []int32 { return byText[s].ids }, func(s string) []int32 { return tok.Encode(s, false) }, parity.Corpus(), workers)
	report(t, "library and ours", r)
	for _, c := range []struct {
		what          string
		library, ours encode
	}{
		{"with special tokens", func(s string) []int32 { return byText[s].special }, func(s string) []int32 { return tok.Encode(s, true) }},
		{"decoded", func(s string) []int32 { return []rune(byText[s].kept) }, func(s string) []int32 { return []rune(tok.Decode(byText[s].special, false)) }},
		{"decoded id by id", func(s string) []int32 { return []rune(byText[s].kept) }, func(s string) []int32 { return []rune(streamed(tok, byText[s].special)) }},
		{"decoded without special tokens", func(s string) []int32 { return []rune(byText[s].skipped) },
			func(s string) []int32 { return []rune(tok.Decode(byText[s].special, true)) }},
	} {
		report(t, "library and ours, "+c.what, parity.Compare(c.library, c.ours, parity.Corpus(), workers))
	}
	return r
}

// streamed joins what a stream gives id by id.
func streamed(tok *tokenizer.Tokenizer, ids []int32) string {
	var b strings.Builder
	s := tok.Stream(false)
	for _, id := range ids {
		b.WriteString(s.Next(id))
	}
	return b.String() + s.Close()
}

// report makes differences an error and shows the first of them.
func report(t *testing.T, what string, r parity.Result) {
	if r.Plain.Different+r.Hard.Different+r.Invalid.Different == 0 {
		return
	}
	t.Errorf("%s: %d of %d plain and %d of %d hard strings differ, and %d of %d that are not UTF-8", what, r.Plain.Different,
		r.Plain.Strings, r.Hard.Different, r.Hard.Strings, r.Invalid.Different, r.Invalid.Strings)
	for i, d := range r.First {
		if i == 12 {
			break
		}
		t.Logf("%s %+q\n  %s\n  %s", d.String.Class, clip(d.String.Text), list(d.A), list(d.B))
	}
}

func clip(s string) string { return s[:min(len(s), 80)] }

func list(ids []int32) string {
	b, _ := json.Marshal(ids[:min(len(ids), 40)])
	return string(b)
}
