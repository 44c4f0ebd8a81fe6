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
		"relative":    {Target{Dir: "dist/x"}, dir.Place{Path: filepath.Join(base, "dist", "x")}, ""},
		"absolute":    {Target{Dir: abs, Replace: true}, dir.Place{Path: abs, Replace: true}, ""},
		"oci":         {Target{OCI: "ghcr.io"}, dir.Place{}, "does not have the form registry/repository:tag"},
		"oci case":    {Target{OCI: "ghcr.io/Someone/x:v1"}, dir.Place{}, "in lower case"},
		"oci tag":     {Target{OCI: "ghcr.io/a/b"}, dir.Place{}, "has no tag"},
		"oci digest":  {Target{OCI: "ghcr.io/a/b@sha256:" + strings.Repeat("0", 64)}, dir.Place{}, "has no tag"},
		"oci scheme":  {Target{OCI: "oci://ghcr.io/a/b:c"}, dir.Place{}, "does not have the form registry/repository:tag"},
		"s3":          {Target{S3: "bucket/x"}, dir.Place{}, "does not have the form s3://bucket/prefix"},
		"s3 bucket":   {Target{S3: "s3://B/x"}, dir.Place{}, "does not have the form s3://bucket/prefix"},
		"s3 above":    {Target{S3: "s3://bucket/../x"}, dir.Place{}, "does not have the form s3://bucket/prefix"},
		"s3 endpoint": {Target{S3: "s3://bucket/x", Endpoint: "minio:9000"}, dir.Place{}, "endpoint does not have the form https://host"},
		"s3 user":     {Target{S3: "s3://bucket/x", Endpoint: "http://me:word@host"}, dir.Place{}, "endpoint does not have the form https://host"},
		"nothing":     {Target{Replace: true}, dir.Place{}, "the kinds are dir (a directory of this machine)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := New(tc.target, base)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "me:word") {
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
