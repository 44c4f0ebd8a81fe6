package hub

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fault"
)

func TestDate(t *testing.T) {
	t.Parallel()
	h := fakehub.New()
	repo := h.Repo(testRepo)
	first := repo.Commit("main", tinyFiles())
	second := repo.Commit("main", map[string][]byte{"new.txt": []byte("text")})
	o := Options{Endpoint: h.Start(t).URL, CacheDir: t.TempDir()}
	at := func(commit string) time.Time {
		t.Helper()
		d, err := Date(t.Context(), Ref{Repo: testRepo, Revision: commit}, o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if a, b := at(first), at(second); !b.After(a) || a.Location() != time.UTC {
		t.Errorf("%v, %v", a, b)
	}
	if _, err := Date(t.Context(), Ref{Repo: testRepo, Revision: strings.Repeat("0", 40)}, o); err == nil {
		t.Error("a commit that does not exist has a date")
	}
	offline := o
	offline.Offline = true
	if _, err := Date(t.Context(), Ref{Repo: testRepo, Revision: first}, offline); err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Error(err)
	}
	o.Source = ModelScope
	if _, err := Date(t.Context(), Ref{Repo: testRepo, Revision: first}, o); !errors.Is(err, fault.ErrUnsupported) {
		t.Error(err)
	}
}

// FuzzDate: no history panics, and a date that is accepted is that of the commit, of a year with four digits.
func FuzzDate(f *testing.F) {
	const good = `[{"id":"` + testCommit + `","date":"2024-05-06T07:08:09.000Z"}]`
	for _, seed := range []string{good, `[]`, `{}`, `[{"id":"x"}]`, `[{"id":"` + testCommit + `","date":"0001-01-01T00:00:00Z"}]`} {
		f.Add([]byte(seed))
	}
	if d, err := parseDate([]byte(good), testCommit); err != nil || d.Format(time.DateOnly) != "2024-05-06" {
		f.Fatal(d, err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDate(b, testCommit)
		if err != nil {
			if !d.IsZero() || !errors.Is(err, fault.ErrCorrupt) {
				t.Fatal(d, err)
			}
			return
		}
		if !strings.Contains(string(b), testCommit) || len(d.Format(time.DateOnly)) != len(time.DateOnly) {
			t.Fatal(d)
		}
	})
}
