// Command image assembles the container image of a release from its static binaries. It needs no container engine: the image is
// one layer over nothing.
//
//	image [-version V] [-revision COMMIT] [-created TIME] [-license FILE] -out DIR linux/amd64=BINARY...
//
// It writes an OCI layout, which skopeo and others copy to a registry, and prints the digest. The same arguments give the same
// image.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	var (
		facts   facts
		out     string
		created string
		license string
	)
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&facts.version, "version", "dev", "version of the program")
	flags.StringVar(&facts.revision, "revision", "", "commit of the program")
	flags.StringVar(&created, "created", "1970-01-01T00:00:00Z", "time of the image, in RFC 3339")
	flags.StringVar(&license, "license", "", "file with the licence")
	flags.StringVar(&out, "out", "", "directory for an OCI layout; a former one is replaced")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if facts.created, err = time.Parse(time.RFC3339, created); err != nil {
		return err
	}
	if license != "" {
		if facts.license, err = os.ReadFile(license); err != nil {
			return err
		}
	}
	var binaries []binary
	for _, arg := range flags.Args() {
		platform, path, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not PLATFORM=BINARY", arg)
		}
		p, err := v1.ParsePlatform(platform)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		binaries = append(binaries, binary{*p, b})
	}
	if len(binaries) == 0 || out == "" {
		return errors.New("-out and at least one binary are needed")
	}
	index, err := facts.index(binaries)
	if err != nil {
		return err
	}
	if err := writeLayout(out, index, facts.version); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, digest)
	return err
}

// writeLayout writes the layout into an empty directory.
func writeLayout(dir string, index v1.ImageIndex, version string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return l.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version}))
}
