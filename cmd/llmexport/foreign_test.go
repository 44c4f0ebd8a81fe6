//go:build foreign

package main

import (
	"os"
	"testing"
)

// TestForeign runs the stories on packages of the stock exporter, which lie in $FOREIGN.
func TestForeign(t *testing.T) {
	scripts(t, "testdata/foreign", map[string]string{"FOREIGN": os.Getenv("LLMEXPORT_FOREIGN")})
}
