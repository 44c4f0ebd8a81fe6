package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// normalizerGolden is what the Python library gave for a normalizer; see testdata/normalizers.py.
type normalizerGolden struct {
	Config                 json.RawMessage
	Single, Joined, Random []string
	First                  string
}

type normalizerFile struct {
	Pool        []string
	Charsmap    string
	Normalizers map[string]normalizerGolden
}

func normalizerGoldens(t testing.TB) normalizerFile {
	t.Helper()
	var f normalizerFile
	tokenizertest.ReadJSON(t, "normalizers.json", &f)
	if len(f.Normalizers) < 30 {
		t.Fatalf("%d normalizers", len(f.Normalizers))
	}
	return f
}

func (f *normalizerFile) read(t testing.TB, config json.RawMessage) normalizer {
	t.Helper()
	raw := bytes.ReplaceAll(config, []byte(`"charsmap"`), []byte(`"`+f.Charsmap+`"`))
	n, ok, err := normalizers.read(raw, maxNesting)
	if err != nil || !ok {
		t.Fatalf("%.200s: %v", config, err)
	}
	return n
}

// splitmix is the generator of normalizers.py.
type splitmix uint64

func (r *splitmix) next() uint64 {
	*r += 0x9E3779B97F4A7C15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func (f *normalizerFile) random(n int) []string {
	pool := make([][]rune, len(f.Pool))
	for i, s := range f.Pool {
		pool[i] = []rune(s)
	}
	rng, out := splitmix(7), make([]string, n)
	for i := range out {
		s := make([]rune, 1+rng.next()%12)
		for j := range s {
			kind := pool[rng.next()%uint64(len(pool))]
			s[j] = kind[rng.next()%uint64(len(kind))]
		}
		out[i] = string(s)
	}
	return out
}

func codePoints(lo, hi rune) (out []string) {
	for r := lo; r < hi; r++ {
		if utf8.ValidRune(r) {
			out = append(out, string(r))
		}
	}
	return out
}

// TestNormalizers compares every normalizer with the Python library: on every character by itself and between others,
// and on 100,000 random texts.
func TestNormalizers(t *testing.T) {
	f := normalizerGoldens(t)
	count := 100000
	part := func(i int) bool { return i == 0 || !testing.Short() } // make test-all compares the rest
	if testing.Short() {
		count = 20000
	}
	random := f.random(count)
	var single, joined [][]string
	for lo := rune(0); lo < 0x110000 && part(len(single)); lo += 0x8000 {
		single = append(single, codePoints(lo, lo+0x8000))
	}
	for _, plane := range []rune{0, 0x10000, 0x20000, 0xE0000} {
		if !part(len(joined)) {
			break
		}
		var texts []string
		for lo := plane; lo < plane+0x10000; lo += 0x100 {
			var b strings.Builder
			for _, c := range codePoints(lo, lo+0x100) {
				fmt.Fprintf(&b, "%s\u0327\u0301 e%s\u0323\u0f71%sᄀ%sᆨ \U00011938%s%s ", c, c, c, c, formNFD.apply(c), formNFKD.apply(c))
			}
			texts = append(texts, b.String())
		}
		joined = append(joined, texts)
	}
	for name, g := range f.Normalizers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := f.read(t, g.Config)
			compare := func(what string, i int, texts []string, want string) {
				out := make([]string, len(texts))
				for j, s := range texts {
					out[j] = n.normalize(align(s)).text
				}
				if tokenizertest.Digest(strings.Join(out, "\x00")) != want {
					t.Errorf("%s texts of part %d differ", what, i)
				}
			}
			for i, want := range g.Single {
				// Planes 4 to 13 have no characters: a part of every other plane will do.
				if part(i) && (i < 8 || i >= 28 || i%4 == 0) {
					compare("single", i, single[i], want)
				}
			}
			for i, want := range g.Joined {
				// Beyond plane 1 the forms of Unicode depend only on the adjacent characters.
				if part(i) && (i < 2 || strings.HasPrefix(name, "NF") || strings.HasPrefix(name, "Precompiled")) {
					compare("joined", i, joined[i], want)
				}
			}
			// The first two parts are those whose beginnings are compared, too.
			var texts []string
			for i, want := range g.Random[2:] {
				if !testing.Short() {
					compare("random", 2+i, random[10000*(2+i):10000*(3+i)], want)
				}
			}
			var first strings.Builder
			for _, s := range random[:20000] {
				a := n.normalize(align(s))
				texts = append(texts, a.text)
				switch {
				case a.text == "" || strings.HasPrefix(a.text, " ") || strings.HasPrefix(a.text, "▁"):
					first.WriteByte('?')
				case a.head > 0:
					first.WriteByte('1')
				default:
					first.WriteByte('0')
				}
			}
			if tokenizertest.Digest(first.String()) != g.First {
				t.Error("the beginnings differ")
			}
			for i, want := range g.Random[:2] {
				if tokenizertest.Digest(strings.Join(texts[10000*i:10000*(i+1)], "\x00")) != want {
					t.Errorf("random texts of part %d differ", i)
				}
			}
		})
	}
}

func TestNormalizersRefuse(t *testing.T) {
	long := strings.Repeat("a", 300)
	for name, c := range map[string]struct {
		config string
		is     error
		want   string
	}{
		"Strip lacks a side":       {`{"type":"Strip","strip_left":true}`, tensor.ErrCorrupt, "without its sides"},
		"unknown setting":          {`{"type":"NFC","colour":1}`, tensor.ErrUnsupported, `"colour"`},
		"Bert lacks a setting":     {`{"type":"BertNormalizer","clean_text":true}`, tensor.ErrCorrupt, "lacks a setting"},
		"Prepend without text":     {`{"type":"Prepend"}`, tensor.ErrCorrupt, "without its text"},
		"Prepend of nothing":       {`{"type":"Prepend","prepend":""}`, tensor.ErrUnsupported, "empty text"},
		"Prepend of much":          {`{"type":"Prepend","prepend":"` + long + `"}`, tensor.ErrUnsupported, "300 bytes"},
		"Replace without content":  {`{"type":"Replace","pattern":{"String":"a"}}`, tensor.ErrCorrupt, "no content"},
		"Replace without pattern":  {`{"type":"Replace","content":"a","pattern":{}}`, tensor.ErrCorrupt, "no pattern"},
		"Replace of nothing":       {`{"type":"Replace","content":"a","pattern":{"String":""}}`, tensor.ErrUnsupported, "empty text"},
		"Replace of a bad regex":   {`{"type":"Replace","content":"a","pattern":{"Regex":"("}}`, tensor.ErrCorrupt, "regex"},
		"Replace by much":          {`{"type":"Replace","content":"` + long + `","pattern":{"String":"a"}}`, tensor.ErrUnsupported, "300 bytes"},
		"growth":                   {`{"type":"Sequence","normalizers":[` + strings.Repeat(`{"type":"ByteLevel"},`, 8) + `{"type":"ByteLevel"}]}`, tensor.ErrUnsupported, "more than 256 bytes of one"},
		"steps":                    {`{"type":"Sequence","normalizers":[` + strings.Repeat(`{"type":"NFC"},`, 64) + `{"type":"NFC"}]}`, tensor.ErrUnsupported, "65 normalizers"},
		"empty match before NFC":   {`{"type":"Sequence","normalizers":[{"type":"Replace","content":"a","pattern":{"Regex":"b*"}},{"type":"NFC"}]}`, tensor.ErrUnsupported, "empty text before"},
		"charsmap null":            {`{"type":"Precompiled","precompiled_charsmap":null}`, tensor.ErrCorrupt, "without its table"},
		"charsmap no base64":       {`{"type":"Precompiled","precompiled_charsmap":"?"}`, tensor.ErrCorrupt, "base64"},
		"charsmap without a trie":  {`{"type":"Precompiled","precompiled_charsmap":"AAAAAA=="}`, tensor.ErrCorrupt, "trie of 0 bytes"},
		"charsmap of one unit":     {`{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAA="}`, tensor.ErrCorrupt, "out of its bounds"},
		"charsmap shorter than it": {`{"type":"Precompiled","precompiled_charsmap":"CAAAAAAAAAA="}`, tensor.ErrCorrupt, "trie of 8 bytes in 4"},
		"charsmap not UTF-8":       {`{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAD/"}`, tensor.ErrCorrupt, "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			n, _, err := normalizers.read(json.RawMessage(c.config), maxNesting)
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || n != nil {
				t.Errorf("%v, %v, want %q", n, err, c.want)
			}
		})
	}
}

// TestNormalizersHostile bounds what long texts that are bad for simpler algorithms become. One that took squared time would
// exceed the time of the whole package.
func TestNormalizersHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const size = 1 << 17
	f := normalizerGoldens(t)
	for name, g := range f.Normalizers {
		n := f.read(t, g.Config)
		for _, unit := range []string{"a", " ", "a\u0301", "\u0301", "\u0301\u0323", "ﷺ", "👩\u200d", "क\u094d", "\u0600", "ab"} {
			out := n.normalize(align(strings.Repeat(unit, size/len(unit))))
			if len(out.text) > growth(n)*12*size {
				t.Errorf("%s makes %d bytes of %q", name, len(out.text), unit)
			}
		}
	}
}

// TestPrecompiledDamage spoils every byte of a table: what is accepted must be safe to use.
func TestPrecompiledDamage(t *testing.T) {
	f := normalizerGoldens(t)
	b, err := base64.StdEncoding.DecodeString(f.Charsmap)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(f.random(50), "")
	step := max(1, len(b)/3000)
	for i := 0; i < len(b); i += step {
		for _, v := range []byte{0, 0xFF, b[i] ^ 1, b[i] ^ 0x80} {
			spoilt := bytes.Clone(b)
			spoilt[i] = v
			if n, err := newPrecompiled(spoilt); err == nil {
				n.normalize(align(text))
			}
		}
		if n, err := newPrecompiled(b[:i]); err == nil {
			n.normalize(align(text))
		}
	}
}

// FuzzPrecompiled: a table that is accepted can be used, and its bound of growth holds. The fuzzer spoils a good one,
// three bytes for a change: where, in two, and the new value.
func FuzzPrecompiled(f *testing.F) {
	g := normalizerGoldens(f)
	good, err := base64.StdEncoding.DecodeString(g.Charsmap)
	if err != nil {
		f.Fatal(err)
	}
	for i, text := range g.random(20) {
		f.Add([]byte{0, byte(i), 0xFF, byte(i), 7, 1}, text)
	}
	f.Fuzz(func(t *testing.T, changes []byte, text string) {
		table := bytes.Clone(good)
		for ; len(changes) >= 3; changes = changes[3:] {
			table[(int(changes[0])<<8|int(changes[1]))%len(table)] = changes[2]
		}
		n, err := newPrecompiled(table)
		if err != nil {
			if n != nil {
				t.Fatal("an error and a table")
			}
			return
		}
		text = lossy(text)
		out := n.normalize(align(text)).text
		if !utf8.ValidString(out) || len(out) > n.growth*len(text) {
			t.Errorf("%q became %q", text, out)
		}
	})
}

// FuzzNormalizers: any normalizer that is accepted gives UTF-8 within its bound, and keeps an empty text empty.
func FuzzNormalizers(f *testing.F) {
	g := normalizerGoldens(f)
	texts := g.random(100)
	for i, name := range slices.Sorted(maps.Keys(g.Normalizers)) {
		config := g.Normalizers[name].Config
		// The tables that the first use makes take longer than the fuzzer waits on a slow machine.
		g.read(f, config).normalize(align(texts[i]))
		f.Add([]byte(bytes.ReplaceAll(config, []byte(`"charsmap"`), []byte(`"`+g.Charsmap+`"`))), texts[i])
	}
	f.Fuzz(func(t *testing.T, config []byte, text string) {
		n, ok, err := normalizers.read(config, maxNesting)
		if err != nil || !ok {
			return
		}
		text = lossy(text)
		// The forms of Unicode and the cases, which count as 1, make eleven bytes of one at most.
		const unicodeGrowth = 12
		out := n.normalize(align(text)).text
		if !utf8.ValidString(out) || len(out) > growth(n)*unicodeGrowth*len(text) {
			t.Errorf("%s: %q became %q", config, text, out)
		}
	})
}
