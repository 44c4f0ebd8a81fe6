// Command sbom writes the software bill of materials of a Go binary as CycloneDX 1.6: the modules that the linker has put into it,
// which the binary records. It runs for binaries of all systems, reads nothing else, and gives the same bill for the same binary.
//
//	sbom -version V [-o FILE] BINARY
package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"runtime/debug"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"

	"github.com/llmexport/llmexport/internal/digest"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	version := flags.String("version", "", "version of the program")
	out := flags.String("o", "", "file to write; standard output if empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *version == "" {
		return errors.New("-version and one binary are needed")
	}
	b, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(b))
	if err != nil {
		return err
	}
	var text bytes.Buffer
	bill := billOf(info, *version, digest.Of(b).Hex())
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bill, cdx.SpecVersion1_6); err != nil {
		return err
	}
	if *out == "" {
		_, err = stdout.Write(text.Bytes())
		return err
	}
	return os.WriteFile(*out, text.Bytes(), 0o666)
}

// billOf returns the bill of a program with this SHA-256.
func billOf(info *debug.BuildInfo, version, sha256 string) *cdx.BOM {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	program := component(cdx.ComponentTypeApplication, debug.Module{Path: info.Main.Path, Version: "v" + version})
	program.Name, program.Version = path.Base(info.Path), version
	program.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sha256}}
	program.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	var facts []cdx.Property
	for _, key := range []string{"GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED", "-tags", "vcs.revision"} {
		if v := settings[key]; v != "" {
			facts = append(facts, cdx.Property{Name: "go:build:" + key, Value: v})
		}
	}
	program.Properties = &facts

	parts := []cdx.Component{component(cdx.ComponentTypeLibrary, debug.Module{Path: "std", Version: info.GoVersion})}
	for _, d := range info.Deps {
		m := *d
		if d.Replace != nil {
			m = *d.Replace
		}
		if m.Sum == "" { // a directory of this repository
			m = debug.Module{Path: d.Path, Version: "v" + version}
		}
		parts = append(parts, component(cdx.ComponentTypeLibrary, m))
	}
	var refs []string
	for _, p := range parts {
		refs = append(refs, p.BOMRef)
	}
	bill := cdx.NewBOM()
	bill.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte("sha256:"+sha256)).URN()
	bill.Metadata = &cdx.Metadata{Timestamp: settings["vcs.time"], Component: &program}
	bill.Components = &parts
	bill.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &refs}}
	return bill
}

func component(kind cdx.ComponentType, m debug.Module) cdx.Component {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := cdx.Component{Type: kind, BOMRef: url, PackageURL: url, Name: m.Path, Version: m.Version}
	if m.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}
