package device

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// The programs of the engine: one continues prompts, the other computes the perplexity of a text.
const (
	demoProgram       = "llm_demo"
	perplexityProgram = "ppl_eval"
)

// Engine is the engine on the device.
type Engine struct {
	Program string `json:"program"` // path on the device
	ABI     string `json:"abi"`
	// Version is the release, empty if the libraries do not tell.
	Version string `json:"version,omitempty"`
	// Perplexity reports that ppl_eval is there as well.
	Perplexity bool `json:"ppl_eval"`
}

// engineError is a failure of the engine with this package.
type engineError struct{ program, reason string }

func (e *engineError) Error() string { return e.program + ": " + e.reason }

const getEngine = "--engine-dir names a directory with llm_demo and the shared libraries of MNN, built for the device; " +
	"docs/device.md shows how to build them"

// engineFiles lists what is pushed of a directory with an engine: the two programs and all shared libraries.
func engineFiles(ctx context.Context, dir string) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []file
	found := false
	for _, e := range entries {
		name := e.Name()
		program := name == demoProgram || name == perplexityProgram
		if !program && !strings.HasSuffix(name, ".so") && !strings.Contains(name, ".so.") {
			continue
		}
		f, err := manifest.HashFile(ctx, filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		found = found || name == demoProgram
		files = append(files, file{File: f, local: filepath.Join(dir, name), executable: program})
	}
	if !found {
		return nil, problem(getEngine, "%s has no %s", dir, demoProgram)
	}
	return files, nil
}

// engine examines the engine in a directory of the device.
func (a *ADB) engine(ctx context.Context, dir string, p *Phone) (*Engine, error) {
	list := []string{demoProgram, perplexityProgram, "libMNN.so"}
	sizes, err := a.sizes(ctx, dir, list)
	if err != nil {
		return nil, err
	}
	if _, ok := sizes[demoProgram]; !ok {
		return nil, problem(getEngine, "there is no %s in %s of the device", demoProgram, dir)
	}
	if _, err := a.do(ctx, "chmod 755 "+quote(path.Join(dir, demoProgram))); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "llmexport-engine")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	e := &Engine{Program: path.Join(dir, demoProgram)}
	_, e.Perplexity = sizes[perplexityProgram]
	for _, name := range []string{demoProgram, "libMNN.so"} {
		if _, ok := sizes[name]; !ok {
			continue
		}
		local := filepath.Join(tmp, name)
		if err := a.Pull(ctx, path.Join(dir, name), local); err != nil {
			return nil, err
		}
		abi, err := abiOf(local)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(p.ABIs, abi) {
			return nil, wrongABI(name, abi, p)
		}
		b, err := os.ReadFile(local)
		if err != nil {
			return nil, err
		}
		e.ABI, e.Version = cmp.Or(e.ABI, abi), releaseIn(b)
	}
	return e, nil
}

func wrongABI(name, abi string, p *Phone) error {
	return fmt.Errorf("%s is built for %s; the device executes %s: %w", name, abi, strings.Join(p.ABIs, ", "), tensor.ErrUnsupported)
}

// abiOf returns the ABI of an executable or library.
func abiOf(file string) (string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", problem(getEngine, "%s is not a program of Android: %v", filepath.Base(file), err)
	}
	defer f.Close()
	switch f.Machine {
	case elf.EM_AARCH64:
		return "arm64-v8a", nil
	case elf.EM_ARM:
		return "armeabi-v7a", nil
	case elf.EM_X86_64:
		return "x86_64", nil
	case elf.EM_386:
		return "x86", nil
	}
	return f.Machine.String(), nil
}

// releaseText is a version string of C. MNN's libraries hold their own, and versions of libraries that are older than 1.
var releaseText = regexp.MustCompile(`\x00([1-9][0-9]?\.[0-9]{1,2}\.[0-9]{1,2})\x00`)

// releaseIn returns the release of MNN that a library was built from, or an empty string if that is not certain.
func releaseIn(b []byte) string {
	var found []byte
	for len(b) > 0 {
		m := releaseText.FindSubmatchIndex(b)
		if m == nil {
			break
		}
		v := b[m[2]:m[3]]
		if found != nil && !bytes.Equal(found, v) {
			return ""
		}
		found, b = v, b[m[3]:]
	}
	return string(found)
}

// olderRelease reports whether release a comes before b; false if one is not a release.
func olderRelease(a, b string) bool {
	x, y := numbersOf(a), numbersOf(b)
	return x != nil && y != nil && slices.Compare(x, y) < 0
}

func numbersOf(release string) []int {
	var list []int
	for part := range strings.SplitSeq(release, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		list = append(list, n)
	}
	return list
}
