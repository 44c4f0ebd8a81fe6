package publish

import (
	"errors"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/publish/manifest"
)

func TestPlaceholders(t *testing.T) {
	all := Values{Name: "x-int4", Commit: "0123456789abcdef0123456789abcdef01234567", Revision: "v1", Date: "2026-11-23", Version: "0.1.0"}
	for text, want := range map[string]string{
		"dist/{name}/{name}":  "dist/x-int4/x-int4",
		"{commit}":            all.Commit,
		"{name}-{commit:8}":   "x-int4-01234567",
		"{commit:40}":         all.Commit,
		"{revision}/{date}":   "v1/2026-11-23",
		"by-{version}":        "by-0.1.0",
		"nothing of the kind": "nothing of the kind",
	} {
		got, err := Target{Dir: text, Tag: text, Replace: true, LicenseAck: "{odd}"}.Filled(all)
		if want := (Target{Dir: want, Tag: want, Replace: true, LicenseAck: "{odd}"}); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	const list = "placeholders are {name}, {commit}, {commit:8}, {revision}, {date}, {version}"
	for text, want := range map[string]string{
		"dist/{nam}":                    `dir: "dist/{nam}": {nam} is not a placeholder; ` + list,
		"{Name}":                        "{Name} is not a placeholder",
		"{}":                            "{} is not a placeholder",
		"dist/{name":                    "a brace outside a placeholder; " + list,
		"name}":                         "a brace outside a placeholder",
		"{{name}}":                      "a brace outside a placeholder",
		"{name:2}":                      "has no digits to count",
		"{commit:0}":                    "must ask for 1 to 40 digits",
		"{commit:41}":                   "must ask for 1 to 40 digits",
		"{commit:99999999999999999999}": "must ask for 1 to 40 digits",
	} {
		if _, err := (Target{Dir: text}).Filled(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"{commit:8}": "{commit:8} is unknown: the source is a directory",
		"{revision}": "{revision} is unknown: ",
		"{date}":     "{date} is unknown: the source is not a repository of Hugging Face; set SOURCE_DATE_EPOCH",
	} {
		if _, err := (Target{Dir: text}).Filled(Values{Name: "x"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if s := (Target{Tag: "{commit:8}"}); !s.Uses("commit") || s.Uses(DateWord) {
		t.Error("Uses")
	}
}

func TestPlaces(t *testing.T) {
	x := Values{Name: "x"}
	var entry *EntryError
	if _, err := Places([]Target{{Dir: "a/../{name}"}, {Dir: "x"}}, ".", x); !errors.As(err, &entry) || entry.Entry != 1 {
		t.Errorf("one place twice: %v", err)
	}
	if _, err := Places([]Target{{Dir: "x"}, {Hub: "a/b"}, {Dir: "x/{name}"}}, t.TempDir(), x); !errors.As(err, &entry) || entry.Entry != 2 {
		t.Errorf("one place inside another: %v", err)
	}
}

func TestDateOf(t *testing.T) {
	h := fakehub.New()
	commit := h.Repo("org/tiny").Commit("main", map[string][]byte{"a": []byte("b")})
	o := hub.Options{Endpoint: h.Start(t).URL, CacheDir: t.TempDir()}
	source := manifest.Source{Repo: "org/tiny", Revision: commit}
	t.Setenv(epochEnv, "")
	want, err := hub.Date(t.Context(), hub.Ref{Repo: source.Repo, Revision: commit}, o)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it is the day of the commit whenever it is asked for
		if d, err := DateOf(t.Context(), source, o); err != nil || d != want.Format("2006-01-02") {
			t.Errorf("%s, %v, want %v", d, err, want)
		}
	}
	if d, err := DateOf(t.Context(), manifest.Source{}, o); err != nil || d != "" {
		t.Errorf("of a directory: %q, %v", d, err)
	}
	t.Setenv(epochEnv, "86400")
	if d, err := DateOf(t.Context(), source, o); err != nil || d != "1970-01-02" {
		t.Errorf("%s, %v", d, err)
	}
	for _, bad := range []string{"tomorrow", "-1", "9999999999999"} {
		t.Setenv(epochEnv, bad)
		if d, err := DateOf(t.Context(), source, o); !errors.Is(err, errEpoch) || d != "" {
			t.Errorf("%s: %s, %v", bad, d, err)
		}
	}
}
