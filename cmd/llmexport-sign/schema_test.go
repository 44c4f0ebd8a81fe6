package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	provenancev1 "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/llmexport/llmexport/publish/provenance"
)

// goldens are files that tests of the main module hold their output to.
func goldens(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", "publish", filepath.FromSlash(pattern)))
	if err != nil || len(paths) < 2 {
		t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
	}
	files := map[string][]byte{}
	for _, p := range paths {
		files[p] = []byte(read(t, p))
	}
	return files
}

// TestStatements holds statements to the definitions of in-toto and SLSA: no member that those do not know, and all
// that they demand.
func TestStatements(t *testing.T) {
	files := goldens(t, "provenance/testdata/*.json")
	_, data, err := provenance.Of(t.Context(), newPackage(t))
	if err != nil {
		t.Fatal(err)
	}
	files["a package"] = data
	for name, data := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			var s intoto.Statement
			if err := protojson.Unmarshal(data, &s); err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(); err != nil {
				t.Error(err)
			}
			raw, err := protojson.Marshal(s.GetPredicate())
			if err != nil {
				t.Fatal(err)
			}
			var p provenancev1.Provenance
			if err := protojson.Unmarshal(raw, &p); err != nil {
				t.Fatal(err)
			}
			if err := p.Validate(); err != nil {
				t.Error(err)
			}
			for _, d := range p.GetBuildDefinition().GetResolvedDependencies() {
				if err := d.Validate(); err != nil {
					t.Errorf("%s: %v", d.GetName(), err)
				}
			}
		})
	}
}

// bomSchema compiles the schema of CycloneDX 1.6.
func bomSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	const base = "http://cyclonedx.org/schema/"
	for _, name := range []string{"bom-1.6.schema.json", "spdx.schema.json", "jsf-0.82.schema.json"} {
		f, err := os.Open(filepath.Join("testdata", "cyclonedx", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		doc, err := jsonschema.UnmarshalJSON(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource(base+name, doc); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile(base + "bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBillsOfMaterials holds bills to the schema of CycloneDX, and makes sure that it refuses.
func TestBillsOfMaterials(t *testing.T) {
	schema := bomSchema(t)
	check := func(data []byte) error {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(doc)
	}
	for name, data := range goldens(t, "about/testdata/TestBOM/*/bom.json") {
		if err := check(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for from, to := range map[string]string{
			"machine-learning-model": "model", "urn:uuid:": "uuid:", "SHA-256": "SHA256", `"specVersion": "1.6"`: `"specVersion": 1.6`, `"bom-ref"`: `"ref"`,
		} {
			if bad := strings.Replace(string(data), from, to, 1); bad == string(data) || check([]byte(bad)) == nil {
				t.Errorf("%s: %s instead of %s passes", name, to, from)
			}
		}
		refs(t, data)
	}
	// The bill of a release.
	release := []byte(read(t, filepath.Join("..", "..", "internal", "sbom", "testdata", "bill.json")))
	if err := check(release); err != nil {
		t.Error(err)
	}
	refs(t, release)
}

// refs demands what the schema cannot: every bom-ref is there once.
func refs(t *testing.T, data []byte) {
	t.Helper()
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var look func(any)
	look = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				look(e)
			}
		case map[string]any:
			if r, ok := v["bom-ref"].(string); ok {
				if seen[r] {
					t.Errorf("bom-ref %s appears twice", r)
				}
				seen[r] = true
			}
			for _, e := range v {
				look(e)
			}
		}
	}
	look(tree)
	if len(seen) < 3 {
		t.Errorf("only %d refs", len(seen))
	}
}
