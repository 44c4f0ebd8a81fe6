package publish

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/dir"
)

func TestKinds(t *testing.T) {
	last := ""
	for _, p := range kinds {
		if p.key <= last {
			t.Errorf("%s is not in order or not unique", p.key)
		}
		last = p.key
		if p.doc == "" {
			t.Errorf("%s has no doc", p.key)
		}
		store, _ := p.open(Target{}, ".") // of which only the type matters
		if info, err := os.Stat(filepath.Join(path.Base(reflect.TypeOf(store).PkgPath()), "testdata", p.key)); err != nil || !info.IsDir() {
			t.Errorf("%s has no test directory: %v", p.key, err)
		}
		field, _ := json.Marshal(map[string]string{p.key: "x"})
		var entry Target
		if err := json.Unmarshal(field, &entry); err != nil || p.ref(entry) != "x" {
			t.Errorf("Target has no field %s", p.key)
		}
	}
}

func TestNew(t *testing.T) {
	base := t.TempDir()
	abs := filepath.Join(base, "elsewhere")
	tests := map[string]struct {
		target Target
		want   dir.Place
		err    string
	}{
		"relative": {Target{Dir: "dist/x"}, dir.Place{Path: filepath.Join(base, "dist", "x")}, ""},
		"absolute": {Target{Dir: abs, Replace: true}, dir.Place{Path: abs, Replace: true}, ""},
		"nothing":  {Target{Replace: true}, dir.Place{}, "known: dir (a directory of this machine)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := New(tc.target, base)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want an error with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, ok := s.(dir.Place)
			if !ok || got.Path != tc.want.Path || got.Replace != tc.want.Replace {
				t.Errorf("got %#v, want %#v", s, tc.want)
			}
			if want := "dir " + tc.want.Path; s.String() != want {
				t.Errorf("String is %q, want %q", s, want)
			}
		})
	}
}
