package corpus

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func example() *Corpus {
	return &Corpus{
		Windows: [][]int32{{1, 2, 3}, {4, 5, 2147483647}},
		Domains: []Domain{{"a.txt", strings.Repeat("0a", 32), "text", 3, 40, 3, 1, 1}, {"b", strings.Repeat("0b", 32), "jsonl", 1, 9,
			3, 1, 0.25}, {"c", strings.Repeat("0c", 32), "json", 1, 9, 0, 0, 1}},
		Warnings: []string{"c: no window"},
	}
}

func saveOf(t testing.TB, c *Corpus) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSave(t *testing.T) {
	c := example()
	b := saveOf(t, c)
	back, err := Load(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c, back); d != "" {
		t.Error(d)
	}
	for _, want := range []string{"\n \"corpus\": 1,\n \"digest\": \"" + string(c.Digest()) + `"`, "\n  [1, 2, 3],\n"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in\n%s", want, b)
		}
	}
}

func TestSaveRefuses(t *testing.T) {
	for name, change := range map[string]func(c *Corpus){
		"no windows":      func(c *Corpus) { c.Windows, c.Domains = nil, nil },
		"empty window":    func(c *Corpus) { c.Windows[0] = nil },
		"other length":    func(c *Corpus) { c.Windows[1] = c.Windows[1][:2] },
		"negative":        func(c *Corpus) { c.Windows[1][1] = -1 },
		"more windows":    func(c *Corpus) { c.Domains[0].Windows = 2; c.Domains[0].Tokens = 6 },
		"fewer windows":   func(c *Corpus) { c.Domains = c.Domains[1:] },
		"negative share":  func(c *Corpus) { c.Domains[0].Windows, c.Domains[0].Tokens = -1, -3 },
		"other tokens":    func(c *Corpus) { c.Domains[0].Tokens = 4 },
		"no name":         func(c *Corpus) { c.Domains[0].Name = "" },
		"unknown format":  func(c *Corpus) { c.Domains[0].Format = "csv" },
		"digest":          func(c *Corpus) { c.Domains[0].SHA256 = "sha256:0" },
		"no documents":    func(c *Corpus) { c.Domains[0].Documents = 0 },
		"no bytes":        func(c *Corpus) { c.Domains[0].Bytes = 0 },
		"no weight":       func(c *Corpus) { c.Domains[0].Weight = 0 },
		"infinite weight": func(c *Corpus) { c.Domains[0].Weight = math.Inf(1) },
		"NaN":             func(c *Corpus) { c.Domains[0].Weight = math.NaN() },
	} {
		c := example()
		change(c)
		var b bytes.Buffer
		if err := c.Save(&b); !errors.Is(err, tensor.ErrCorrupt) || b.Len() > 0 {
			t.Errorf("%s: %v, %d bytes", name, err, b.Len())
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	good := string(saveOf(t, example()))
	replace := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("no %s", from)
		}
		return strings.Replace(good, from, to, 1)
	}
	for name, tc := range map[string]struct {
		text string
		want error
	}{
		"empty":          {"", tensor.ErrCorrupt},
		"null":           {"null", tensor.ErrUnsupported},
		"cut off":        {good[:len(good)-3], tensor.ErrCorrupt},
		"another id":     {replace("[1, 2, 3]", "[1, 2, 4]"), tensor.ErrCorrupt},
		"spacing":        {replace("[1, 2, 3]", "[1,2, 3]"), tensor.ErrCorrupt},
		"text behind":    {good + "x", tensor.ErrCorrupt},
		"unknown key":    {replace(`"corpus": 1`, `"corpus": 1, "x": 2`), tensor.ErrCorrupt},
		"version":        {replace(`"corpus": 1`, `"corpus": 2`), tensor.ErrUnsupported},
		"fraction":       {replace("[1, 2, 3]", "[1.5, 2, 3]"), tensor.ErrCorrupt},
		"large id":       {replace("2147483647", "2147483648"), tensor.ErrCorrupt},
		"null window":    {replace("[1, 2, 3]", "null"), tensor.ErrCorrupt},
		"another digest": {replace(`"digest": "sha256:`, `"digest": "sha256:0`), tensor.ErrCorrupt},
	} {
		if c, err := Load(strings.NewReader(tc.text)); !errors.Is(err, tc.want) || c != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	b := saveOf(f, example())
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte(`{"corpus":1,"digest":"","domains":null,"warnings":null,"windows":[[]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Load(bytes.NewReader(b))
		if err != nil {
			if c != nil || !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
				t.Fatalf("%v, %v", c, err)
			}
			return
		}
		if !bytes.Equal(saveOf(t, c), b) {
			t.Fatal("saved again, other bytes")
		}
	})
}
