//go:build adb

package main

import (
	"os"
	"testing"
)

// TestRealEngine runs the stories in testdata/adb, with the stock engines of aarch64 that make adb builds in the folder
// LLMEXPORT_ADB. The device is a fake, which runs them under qemu-aarch64.
func TestRealEngine(t *testing.T) {
	dir := os.Getenv("LLMEXPORT_ADB")
	if dir == "" {
		t.Fatal("LLMEXPORT_ADB names no folder: run make adb")
	}
	scripts(t, "testdata/adb", map[string]string{"ENGINES": dir})
}
