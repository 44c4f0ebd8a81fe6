// Program make writes a variant of a small checkpoint with the outliers of real models:
// go run ./internal/outliers/make -checkpoint DIR -out DIR channels rows sink.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/llmexport/llmexport/internal/outliers"
)

func main() {
	dir := flag.String("checkpoint", "", "directory of the checkpoint, in BF16 with the tensor names of Llama")
	out := flag.String("out", "", "directory to write; it must be empty or missing")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: make -checkpoint DIR -out DIR KIND...\nkinds: %s\n", strings.Join(outliers.Kinds(), ", "))
		flag.PrintDefaults()
	}
	flag.Parse()
	if *dir == "" || *out == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := outliers.Make(*out, *dir, flag.Args()...); err != nil {
		fmt.Fprintln(os.Stderr, "outliers:", err)
		os.Exit(1)
	}
}
