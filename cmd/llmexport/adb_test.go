//go:build adb

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakeadb"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
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

// realADB prepares the adb of the system, with a server of its own, and a device that it is connected to. It returns the serial
// of the device and a function that runs adb.
func realADB(t *testing.T) (serial string, adb func(args ...string) string) {
	t.Helper()
	path := os.Getenv("LLMEXPORT_REAL_ADB")
	if path == "" {
		t.Skip("LLMEXPORT_REAL_ADB names no adb")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	device, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- fakeadb.Serve(device) }()
	t.Setenv("PATH", filepath.Dir(path)+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("ANDROID_ADB_SERVER_PORT", strconv.Itoa(port))
	t.Setenv("HOME", t.TempDir())
	adb = func(args ...string) string {
		out, err := exec.Command(path, args...).CombinedOutput()
		return fmt.Sprintf("%s%v", out, err)
	}
	t.Cleanup(func() {
		adb("kill-server")
		device.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return device.Addr().String(), adb
}

// TestRealADB checks a package by way of the real adb. Its device is the fake one, which speaks adb's protocol here.
func TestRealADB(t *testing.T) {
	state := t.TempDir()
	t.Setenv(fakeadb.State, state)
	serial, adb := realADB(t)
	dir, err := stagetest.Export(t.Context(), t.TempDir(), tiny, "quantize: {bits: 4}\nverify: {perplexity: {window: 256, windows: 1}}")
	if err != nil {
		t.Fatal(err)
	}
	engine, here := t.TempDir(), filepath.Join(t.TempDir(), "it's here")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"llm_demo", "ppl_eval"} {
		if err := os.Link(self, filepath.Join(engine, name)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(code int, want string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		args = append([]string{"llmexport", "--log-level", "error", "verify", dir, "--adb", "--dir", here}, args...)
		got := run(args, strings.NewReader(""), &stdout, &stderr)
		if text := stdout.String() + stderr.String(); got != code || !strings.Contains(text, want) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s", args, got, code, want, text)
		}
	}
	faults := func(line string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(state, "faults"), []byte(line+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check(1, "no device is attached")
	if out := adb("connect", serial); !strings.Contains(out, "connected to "+serial) {
		t.Fatal(out)
	}
	check(0, "5 of 5 files pushed", "--engine-dir", engine)
	check(0, "0 of 5 files pushed", "--serial", serial)
	check(1, "no device 127.0.0.1:1 is attached", "--serial", "127.0.0.1:1")
	faults("engine wrong")
	check(3, `the engine continues with " zebra`)
	faults("push full")
	check(1, "No space left on device")
	faults("shell closed")
	check(1, "adb shell: closed")
	faults("")
	check(0, "golden", "--clean", "--engine-dir", engine)
	if _, err := os.Stat(here); !os.IsNotExist(err) {
		t.Errorf("--clean left %s: %v", here, err)
	}
	adb("disconnect", serial)
	faults("daemon unauthorized")
	t.Log(adb("connect", serial))
	check(1, "device "+serial+" is authorizing")
}
