package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata")

// The bill of a build with modules of every kind. `make test-sign` compares the golden file with the schema of CycloneDX.
func TestBill(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Path: "github.com/llmexport/llmexport/cmd/llmexport-sign",
		Main: debug.Module{Path: "github.com/llmexport/llmexport/cmd/llmexport-sign", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "github.com/google/go-cmp", Version: "v0.7.0", Sum: "h1:wk8382ETsv4JYUZwIsn6YpYiWiBsYLSJiTsyBybVuN8="},
			{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.0.1", Sum: "h1:x="}},
			{Path: "github.com/llmexport/llmexport", Version: "v0.0.0", Replace: &debug.Module{Path: "../.."}},
		},
		Settings: []debug.BuildSetting{
			{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "amd64"}, {Key: "CGO_ENABLED", Value: "0"}, {Key: "-ldflags", Value: "-s"},
			{Key: "vcs.revision", Value: "c43f230f6ba7"}, {Key: "vcs.time", Value: "2026-11-23T09:05:30Z"},
		},
	}
	var got bytes.Buffer
	bill := billOf(info, "0.1.0", strings.Repeat("0123456789abcdef", 4))
	if err := cdx.NewBOMEncoder(&got, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bill, cdx.SpecVersion1_6); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "bill.json")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
}

// A real binary: this test.
func TestBillOfBinary(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "bill.json")
	if err := run([]string{"-version", "0.1.0", "-o", out, self}, io.Discard); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var bill cdx.BOM
	if err := json.Unmarshal(b, &bill); err != nil {
		t.Fatal(err)
	}
	const part = "pkg:golang/github.com/CycloneDX/cyclonedx-go@v"
	if !slices.ContainsFunc(*bill.Components, func(c cdx.Component) bool { return strings.HasPrefix(c.PackageURL, part) }) {
		t.Errorf("%s is not in the bill:\n%s", part, b)
	}
	var again bytes.Buffer
	if err := run([]string{"-version", "0.1.0", self}, &again); err != nil || !bytes.Equal(b, again.Bytes()) {
		t.Errorf("another bill of the same binary, %v", err)
	}
}

func TestBillRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"-version", "1", "main_test.go"}, {"-version", "1", "none"}, {"main_test.go"}, {"-version", "1", "a", "b"},
	} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
