// Command ptx compiles the kernels to PTX with NVRTC, a library that needs neither a card nor the rest of the CUDA toolkit.
//
//	ptx LIBNVRTC FILE.cu... > FILE.ptx
//
// The files are one source.
package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"unsafe"

	"github.com/ebitengine/purego"
)

// options keep the arithmetic that of the source: IEEE operations, no contraction, denormals kept.
var options = []string{"--gpu-architecture=compute_80", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ptx:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: ptx LIBNVRTC FILE.cu...")
	}
	var source []byte
	for _, name := range args[1:] {
		part, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		source = append(source, part...)
	}
	lib, err := purego.Dlopen(args[0], purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return err
	}
	var (
		create  func(p *uintptr, src, name string, n int32, headers, includes unsafe.Pointer) int32
		compile func(p uintptr, n int32, options **byte) int32
		size    func(p uintptr, n *uint64) int32
		get     func(p uintptr, to *byte) int32
		logSize func(p uintptr, n *uint64) int32
		logOf   func(p uintptr, to *byte) int32
	)
	for name, f := range map[string]any{"nvrtcCreateProgram": &create, "nvrtcCompileProgram": &compile, "nvrtcGetPTXSize": &size, "nvrtcGetPTX": &get,
		"nvrtcGetProgramLogSize": &logSize, "nvrtcGetProgramLog": &logOf} {
		purego.RegisterLibFunc(f, lib, name)
	}
	var p uintptr
	if rc := create(&p, string(source), "kernels.cu", 0, nil, nil); rc != 0 {
		return fmt.Errorf("nvrtcCreateProgram: %d", rc)
	}
	list := make([]*byte, len(options))
	for i, o := range options {
		list[i] = &append([]byte(o), 0)[0]
	}
	text := func(size func(uintptr, *uint64) int32, get func(uintptr, *byte) int32) []byte {
		var n uint64
		size(p, &n)
		b := make([]byte, n+1)
		get(p, &b[0])
		return bytes.TrimRight(b, "\x00")
	}
	if rc := compile(p, int32(len(list)), &list[0]); rc != 0 {
		return fmt.Errorf("nvrtcCompileProgram: %d\n%s", rc, text(logSize, logOf))
	}
	// The code needs nothing newer than 7.8, but for hints about loads, and drivers refuse versions newer than themselves.
	out := regexp.MustCompile(`(?m)^\.version .*$`).ReplaceAll(text(size, get), []byte(".version 7.8"))
	out = regexp.MustCompile(`(?m)^\s*\.pragma "used_bytes_mask .*\n`).ReplaceAll(out, nil)
	_, err = os.Stdout.Write(out)
	return err
}
