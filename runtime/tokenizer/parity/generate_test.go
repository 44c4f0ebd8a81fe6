package parity

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

var update = flag.Bool("update", false, "rewrite corpus.jsonl.gz")

// generator makes the corpus. It depends on nothing that changes with releases of Go: neither on tables of Unicode for
// what young scripts are, nor on a random source of the standard library.
type generator struct {
	state   uint64
	strings []String
	seen    map[string]bool
	// tables are the code points of unicode.txt.
	scripts, categories []table
	// byCategory is categories by name.
	byCategory map[string][]rune
}

// table is a script or a general category.
type table struct {
	name  string
	runes []rune
}

func (g *generator) next() uint64 { // splitmix64
	g.state += 0x9e3779b97f4a7c15
	z := g.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// n returns a number from 0 to n-1.
func (g *generator) n(n int) int { return int(g.next() >> 11 % uint64(n)) }

// between returns a number from a to b.
func (g *generator) between(a, b int) int { return a + g.n(b-a+1) }

// one time in n
func (g *generator) chance(n int) bool { return g.n(n) == 0 }

func pick[T any](g *generator, list []T) T { return list[g.n(len(list))] }

// of joins n picks.
func (g *generator) of(list []rune, n int) string {
	var b strings.Builder
	for range n {
		b.WriteRune(pick(g, list))
	}
	return b.String()
}

// plain and hard add a string unless there is one like it.
func (g *generator) plain(class, text string) { g.add(String{class, norm.NFC.String(text), false}) }
func (g *generator) hard(class, text string)  { g.add(String{class, text, true}) }

func (g *generator) add(s String) {
	if s.Text != "" && !g.seen[s.Text] {
		g.seen[s.Text] = true
		g.strings = append(g.strings, s)
	}
}

// fill adds strings of a class until there are n, or make gives nothing new.
func (g *generator) fill(add func(class, text string), class string, n int, text func() string) {
	for start, tries := len(g.strings), 0; len(g.strings)-start < n && tries < 5*n; tries++ {
		add(class, text())
	}
}

func readText(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for l := range strings.Lines(string(b)) {
		if l = strings.TrimSuffix(l, "\n"); !strings.HasPrefix(l, "# ") {
			lines = append(lines, l)
		}
	}
	return lines
}

func generate(t *testing.T) []String {
	t.Helper()
	g := &generator{state: 20261121, seen: map[string]bool{}, byCategory: map[string][]rune{}}
	for _, l := range readText(t, "unicode.txt") {
		f := strings.Fields(l)
		tab := table{name: f[1]}
		for r := range strings.SplitSeq(f[2], ",") {
			from, to, ok := strings.Cut(r, "-")
			if !ok {
				to = from
			}
			a, err1 := strconv.ParseUint(from, 16, 32)
			b, err2 := strconv.ParseUint(to, 16, 32)
			if err1 != nil || err2 != nil {
				t.Fatalf("unicode.txt: %s", l)
			}
			// The larger scripts, such as Han, and blocks of the unassigned are thinned out.
			for c, step := a, 1+(b-a)/600; c <= b; c += step {
				tab.runes = append(tab.runes, rune(c))
			}
		}
		if f[0] == "script" {
			g.scripts = append(g.scripts, tab)
		} else {
			g.categories = append(g.categories, tab)
			g.byCategory[tab.name] = tab.runes
		}
	}
	g.sentences(readText(t, "languages.txt"))
	g.code()
	g.documents()
	g.unicode()
	g.marks()
	g.emoji()
	g.spaces()
	g.bytes()
	g.tokens()
	g.long()
	g.splices()
	return g.strings
}

func marshal(t *testing.T, list []String) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, s := range list {
		l := line{Class: s.Class, Hard: s.Hard, Text: &s.Text}
		if !utf8.ValidString(s.Text) {
			l.Text, l.Base64 = nil, []byte(s.Text)
		}
		if err := e.Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestGenerate makes the corpus again and compares it with the file, uncompressed: its compressed form depends on the
// release of Go.
func TestGenerate(t *testing.T) {
	want := marshal(t, generate(t))
	sum := sha256.Sum256(want)
	digest := hex.EncodeToString(sum[:])
	if *update {
		var z bytes.Buffer
		w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if have, err := Lines(); err == nil && bytes.Equal(have, want) {
			return
		}
		if err := os.WriteFile("corpus.jsonl.gz", z.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		t.Logf("const SHA256 = %q", digest)
		return
	}
	have, err := Lines()
	if err != nil {
		t.Fatal(err)
	}
	if digest != SHA256 {
		t.Errorf("the generator's lines have SHA-256 %s, the constant is %s", digest, SHA256)
	}
	if !bytes.Equal(have, want) {
		t.Error("corpus.jsonl.gz is not what the generator makes; rewrite it with -update")
	}
}
