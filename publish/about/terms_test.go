package about

import (
	"strings"
	"testing"
)

func TestTerms(t *testing.T) {
	for card, want := range map[string][2]string{
		"":                         {},
		"# no front matter":        {},
		"---\nlicense: MIT\n---\n": {"mit", ""},
		"---\nlicense: apache-2.0\nlicense_name: x\n---\n":                {"apache-2.0", ""},
		"---\nlicense: other\nlicense_name: qwen-research\n---\n":         {"other", "qwen-research"},
		"---\nlicense: other\n---\n":                                      {"other", ""},
		"---\nlicense: [mit, apache-2.0, mit]\n---\n":                     {"apache-2.0, mit", ""},
		"---\nlicense:\n- cc-by-nc-4.0\n---\n":                            {"cc-by-nc-4.0", ""},
		"---\nlicense: {a: b}\n---\n":                                     {},
		"---\nlicense: 3\n---\n":                                          {},
		"---\nlicense: " + strings.Repeat("x", 200) + "\n---\n":           {},
		"---\nlicense: other\nlicense_name: \"a\\u0007b\"\n---\n":         {"other", ""},
		"---\nlicense: mit\nmodel-index:\n- name: &a x\n  b: *a\n---\nxx": {"mit", ""},
	} {
		if l, n := Terms([]byte(card)); l != want[0] || n != want[1] {
			t.Errorf("%.60q: %q %q, want %q", card, l, n, want)
		}
	}
}

func FuzzTerms(f *testing.F) {
	f.Add([]byte("---\nlicense: other\nlicense_name: x\n---\n"))
	f.Fuzz(func(t *testing.T, card []byte) {
		l, n := Terms(card)
		if len(l) > maxLicenseID || len(n) > maxLicenseID || strings.ContainsAny(l+n, "\n\r\x00") {
			t.Errorf("%q %q", l, n)
		}
	})
}
