package main

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish/manifest"
)

// otherProgram is a program in a module of its own, as cmd/llmexport-sign is, that prints its version of the code.
const otherProgram = `package main

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline"
)

func main() { fmt.Println(pipeline.Code()) }
`

// gitClone is a clone of the repository.
type gitClone struct {
	t    *testing.T
	path string
}

// run runs a command in the clone, with further variables, and returns what it printed.
func (s *gitClone) run(env []string, name string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = s.path
	cmd.Env = append(append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0"), env...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		s.t.Fatalf("%s %q: %v\n%s", name, args, err, exit.Stderr)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return string(out)
}

// write puts a file into the clone.
func (s *gitClone) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.path, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *gitClone) read(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.path, filepath.FromSlash(name)))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// stamp returns the digest of the sources that make build would set.
func (s *gitClone) stamp(arch string) string {
	s.t.Helper()
	m := regexp.MustCompile(`pipeline\.sources=([0-9a-f]{64})'`).FindStringSubmatch(s.run([]string{"GOARCH=" + arch}, "make", "-n", "build"))
	if m == nil {
		s.t.Fatal("make build sets no digest of the sources")
	}
	return m[1]
}

// codeOf returns the version of the code that a program of ours prints.
func (s *gitClone) codeOf(command ...string) string {
	s.t.Helper()
	var v versionFacts
	if err := json.Unmarshal([]byte(s.run(nil, command[0], append(command[1:], "version", "--json")...)), &v); err != nil {
		s.t.Fatal(err)
	}
	return v.Code
}

// Programs of one revision, or of the same modified sources, have one version of the code, whatever processor they are for: what
// one has made another one finds.
func TestCodeIsShared(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, tool := range []string{"git", "make", "qemu-aarch64"} {
		if _, err := exec.LookPath(tool); err != nil || runtime.GOARCH != "amd64" {
			t.Skipf("needs %s, on amd64", tool)
		}
	}
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if exec.Command("git", "-C", source, "rev-parse", "HEAD").Run() != nil {
		t.Skip("needs a git clone of the repository")
	}
	dir := t.TempDir()
	s := &gitClone{t, dir}
	s.run(nil, "git", "clone", "-q", source, "clone")
	s.path = filepath.Join(dir, "clone")

	module := strings.Replace(s.read("go.mod"), "llmexport/llmexport\n", "llmexport/llmexport/cmd/other\n", 1)
	s.write("cmd/other/go.mod", module+"\nrequire github.com/llmexport/llmexport v0.0.0\nreplace github.com/llmexport/llmexport => ../..\n")
	s.write("cmd/other/go.sum", s.read("go.sum"))
	s.write("cmd/other/main.go", otherProgram)
	s.run(nil, "go", "list", "-C", "cmd/other", "-deps", ".")
	s.run(nil, "git", "add", "cmd/other")
	s.run(nil, "git", "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "another program")
	want := "revision-" + strings.TrimSpace(s.run(nil, "git", "rev-parse", "HEAD")) + "-" + runtime.Version()

	build := func(arch, in string) string {
		to := filepath.Join(dir, arch+"-"+filepath.Base(in))
		s.run([]string{"GOARCH=" + arch}, "go", "build", "-C", in, "-trimpath", "-buildvcs=true", "-o", to, ".")
		return to
	}
	native, emulated := []string{build("amd64", "cmd/llmexport")}, []string{"qemu-aarch64", build("arm64", "cmd/llmexport")}
	for _, command := range [][]string{native, emulated} {
		if got := s.codeOf(command...); got != want {
			t.Errorf("%q: %s, want %s", command, got, want)
		}
	}
	if got := s.run(nil, build("amd64", "cmd/other")); got != want+" <nil>\n" {
		t.Errorf("another program: %s, want %s", got, want)
	}

	cache := filepath.Join(dir, "cache")
	export := func(command []string, to string) (digest digest.Digest, built map[string]time.Time) {
		t.Helper()
		args := append(slices.Clone(command[1:]), "run", "recipes/demo.yaml", "--cache", cache, "--set", "publish=[{dir: "+filepath.Join(dir, to)+"}]")
		s.run(nil, command[0], args...)
		m, err := manifest.Open(filepath.Join(dir, to))
		if err != nil {
			t.Fatal(err)
		}
		entries, err := filepath.Glob(filepath.Join(cache, "*-*", "done.json"))
		if err != nil || len(entries) < 3 {
			t.Fatalf("entries %q, %v", entries, err)
		}
		built = map[string]time.Time{}
		for _, e := range entries {
			info, err := os.Stat(filepath.Dir(e))
			if err != nil {
				t.Fatal(err)
			}
			built[e] = info.ModTime()
		}
		return m.Digest, built
	}
	digest, built := export(native, "native")
	again, then := export(emulated, "emulated")
	if digest != again || !maps.Equal(built, then) {
		t.Errorf("on arm64 the package is %s, not %s, and the cache holds %v, not %v", again, digest, then, built)
	}

	stamp := s.stamp("amd64")
	s.write("pipeline/store_test.go", "package pipeline\n")
	if got := s.stamp("arm64"); got != stamp {
		t.Errorf("for arm64, with another test: %s, want %s", got, stamp)
	}
	s.write("verify/text.txt", "another text, which is embedded")
	if s.stamp("amd64") == stamp {
		t.Error("the text that is embedded does not count")
	}
	s.run(nil, "git", "checkout", "-q", "verify/text.txt")
	s.run(nil, "make", "build")
	if got := s.codeOf(filepath.Join(s.path, "bin", "llmexport")); got != "sources-"+stamp+"-"+runtime.Version() {
		t.Errorf("make build in a modified tree: %s, want %s", got, stamp)
	}
}
