package watch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestStateSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.json")
	s, err := loadState(path)
	if err != nil || len(s.Entries) != 0 {
		t.Fatal(s, err)
	}
	x := s.find(Entry{Repo: "a/b", Revision: "main", Recipe: "qwen3", Set: []string{"quantize.bits=8"}})
	x.Commit, x.ETag, x.PollAfter = commitA, `W/"1"`, time.Unix(1e9, 0).UTC()
	x.Runs = append(x.Runs, &run{Commit: commitB, Outcome: failed, ExitCode: 3, Error: "no", Failures: 2},
		&run{Commit: commitA, Outcome: running, PID: 7, Started: time.Unix(2e9, 0).UTC()})
	for range 2 {
		if err := s.save(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := loadState(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got, cmpopts.IgnoreUnexported(Entry{})); diff != "" {
		t.Error(diff)
	}
	if list, _ := os.ReadDir(filepath.Dir(path)); len(list) != 1 {
		t.Errorf("%d files next to the state", len(list))
	}
}

func TestStateDamaged(t *testing.T) {
	entry := func(s string) string {
		return `{"version":1,"entries":[{"repo":"a/b","revision":"main","recipe":"qwen3","set":null,` + s + `}]}`
	}
	for name, text := range map[string]string{
		"empty":         "",
		"cut":           entry(`"runs":[]`)[:60],
		"zeros":         strings.Repeat("\x00", 100),
		"more":          entry(`"runs":[]`) + "{}",
		"a bracket":     entry(`"runs":[]`) + "]",
		"deep":          entry(`"runs":` + strings.Repeat("[", 40) + strings.Repeat("]", 40)),
		"version":       `{"version":2,"entries":[]}`,
		"unknown key":   entry(`"rnus":[]`),
		"null entry":    `{"version":1,"entries":[null]}`,
		"null run":      entry(`"runs":[null]`),
		"commit":        entry(`"commit":"main"`),
		"etag only":     entry(`"etag":"\"x\""`),
		"run commit":    entry(`"runs":[{"commit":"x","outcome":"done"}]`),
		"outcome":       entry(`"runs":[{"commit":"` + commitA + `","outcome":"?"}]`),
		"two of commit": entry(`"runs":[{"commit":"` + commitA + `","outcome":"done"},{"commit":"` + commitA + `","outcome":"failed"}]`),
		"two entries":   `{"version":1,"entries":[{"repo":"a/b","runs":[]},{"repo":"a/b","runs":[]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.json")
			if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			s, err := loadState(path)
			if s != nil || !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte(`{"version":1,"entries":[]}`))
	f.Add([]byte(`{"version":1,"entries":[{"repo":"a/b","revision":"main","recipe":"qwen3","set":["a=b"],"commit":"` + commitA +
		`","etag":"\"x\"","runs":[{"commit":"` + commitA + `","outcome":"done"}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseState(b)
		if (s == nil) != (err != nil) {
			t.Fatal(s, err)
		}
		if err != nil {
			return
		}
		first, err := json.Marshal(s)
		if err != nil {
			return // a time that JSON cannot write
		}
		again, err := parseState(first)
		if err != nil {
			t.Fatalf("%v\n%s", err, first)
		}
		if second, err := json.Marshal(again); err != nil || string(first) != string(second) {
			t.Fatalf("%v\n%s\n%s", err, first, second)
		}
	})
}
