//go:build unix

// Package release tests what a release consists of: install.sh here, and with the build tag release all files that
// `make release-snapshot` has made.
package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// server is a page of releases.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string][]byte // by path
	asked []string
}

// archiveName is the archive for this machine.
var archiveName = "llmexport-" + runtime.GOOS + "-" + runtime.GOARCH + ".tar.gz"

// program is a release whose program is a script.
func program(version string) []byte {
	return archive(map[string]string{
		"llmexport":                                      "#!/bin/sh\necho llmexport " + version + " of a test\n",
		"share/man/man1/llmexport.1.gz":                  "page",
		"share/fish/vendor_completions.d":                "",
		"share/fish/vendor_completions.d/llmexport.fish": "completions",
		"LICENSE": "licence",
	})
}

// archive is a tar.gz with files and, where the content is empty, directories.
func archive(files map[string]string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		h := tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if text == "" {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if strings.HasPrefix(text, "#!") {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			panic(err)
		}
	}
	w.Close()
	z.Close()
	return b.Bytes()
}

// sums is SHA256SUMS for files.
func sums(files map[string][]byte) []byte {
	var b bytes.Buffer
	for name, content := range files {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(content), name)
	}
	return b.Bytes()
}

// newServer serves release 0.1.0 and, as the latest, 0.2.0.
func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{files: map[string][]byte{}}
	for path, version := range map[string]string{"/download/v0.1.0/": "0.1.0", "/latest/download/": "0.2.0"} {
		a := program(version)
		s.files[path+archiveName] = a
		s.files[path+"SHA256SUMS"] = sums(map[string][]byte{archiveName: a, "other-" + archiveName: []byte("other"), archiveName + ".json": nil})
		s.files[path+"SHA256SUMS.sigstore.json"] = []byte("bundle")
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, r.URL.Path)
		content, ok := s.files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content)
	}))
	t.Cleanup(s.Close)
	return s
}

// needed are the tools that install.sh uses besides those for downloads and digests.
var needed = []string{"sh", "uname", "mktemp", "rm", "tar", "gzip", "awk", "cp", "chmod", "mv", "mkdir", "find", "head", "cat"}

// tools makes a directory for PATH with only some tools; box, if not empty, is a program that stands in for all of them.
func tools(t *testing.T, box string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		target := box
		if target == "" {
			var err error
			if target, err = exec.LookPath(name); err != nil {
				t.Skipf("%s is not installed", name)
			}
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// add writes an executable script into a directory of tools.
func add(t *testing.T, dir, name, text string) {
	t.Helper()
	_ = os.Remove(filepath.Join(dir, name))
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o777); err != nil {
		t.Fatal(err)
	}
}

// install runs install.sh by a shell in a new home and returns the home and what it printed.
func install(t *testing.T, s *server, shell []string, path string, args ...string) (home, out string, err error) {
	t.Helper()
	home = t.TempDir()
	script, err := filepath.Abs(filepath.Join(root, "install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), shell[0], slices.Concat(shell[1:], []string{script}, args)...)
	cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "PATH=" + path, "TMPDIR=" + t.TempDir(), "LLMEXPORT_RELEASES=" + s.URL}
	b, err := cmd.CombinedOutput()
	if left, _ := filepath.Glob(filepath.Join(strings.TrimPrefix(cmd.Env[2], "TMPDIR="), "*")); len(left) > 0 {
		t.Errorf("temporary files are left: %q", left)
	}
	return home, string(b), err
}

// installed returns the files below a directory, with their modes.
func installed(t *testing.T, dir string) string {
	t.Helper()
	var list []string
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			list = append(list, fmt.Sprintf("%s %o", rel, info.Mode().Perm()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "\n")
}

const wantFiles = `bin/llmexport 755
share/fish/vendor_completions.d/llmexport.fish 644
share/man/man1/llmexport.1.gz 644`

// Every shell installs the latest release, with curl or wget and any tool for digests.
func TestInstallShells(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" || runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("there are no releases for this machine")
	}
	for _, tc := range []struct {
		name  string
		shell []string
		tools []string
	}{
		{"sh", []string{"sh"}, []string{"curl", "sha256sum"}},
		{"dash", []string{"dash"}, []string{"curl", "sha256sum"}},
		{"bash", []string{"bash", "--posix"}, []string{"wget", "shasum"}},
		{"zsh", []string{"zsh", "--emulate", "sh"}, []string{"curl", "openssl"}},
		{"busybox", []string{"busybox", "sh"}, []string{"wget", "sha256sum"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			shell, err := exec.LookPath(tc.shell[0])
			if err != nil {
				t.Skipf("%s is not installed", tc.shell[0])
			}
			box := ""
			if tc.name == "busybox" {
				box = shell
			}
			path := tools(t, box, slices.Concat(needed, tc.tools)...)
			s := newServer(t)
			home, out, err := install(t, s, append([]string{shell}, tc.shell[1:]...), path)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := installed(t, filepath.Join(home, ".local")); got != wantFiles {
				t.Errorf("installed:\n%s\nwant:\n%s", got, wantFiles)
			}
			bin := filepath.Join(home, ".local", "bin")
			for _, want := range []string{"installed llmexport 0.2.0 of a test as " + bin, `export PATH="` + bin + `:$PATH"`, "the signature is not checked"} {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in:\n%s", want, out)
				}
			}
		})
	}
}

// What is wrong is refused, and nothing is installed.
func TestInstallRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	base := slices.Concat(needed, []string{"curl", "sha256sum"})
	const latest = "/latest/download/"
	for name, tc := range map[string]struct {
		args   []string
		change func(t *testing.T, s *server, path string)
		want   string
	}{
		"another archive": {nil, func(_ *testing.T, s *server, _ string) {
			s.files[latest+archiveName] = program("6.6.6")
		}, "not of this release; nothing was installed"},
		"cut off": {nil, func(_ *testing.T, s *server, _ string) {
			s.files[latest+archiveName] = s.files[latest+archiveName][:100]
		}, "nothing was installed"},
		"no digest": {nil, func(_ *testing.T, s *server, _ string) {
			s.files[latest+"SHA256SUMS"] = sums(map[string][]byte{"x": nil})
		}, "has no digest of " + archiveName},
		"no digests":   {nil, func(_ *testing.T, s *server, _ string) { delete(s.files, latest+"SHA256SUMS") }, "SHA256SUMS cannot be downloaded"},
		"no release":   {[]string{"--version", "9.9.9"}, nil, "v9.9.9/" + archiveName + " cannot be downloaded"},
		"other system": {nil, func(t *testing.T, _ *server, path string) { add(t, path, "uname", "echo SunOS") }, "there is no release for SunOS"},
		"other machine": {nil, func(t *testing.T, _ *server, path string) {
			add(t, path, "uname", `[ "$1" = -s ] && echo Linux || echo riscv64`)
		}, "there is no release for riscv64"},
		"no downloads": {nil, func(t *testing.T, _ *server, path string) { os.Remove(filepath.Join(path, "curl")) }, "curl or wget is needed"},
		"no digest tool": {nil, func(t *testing.T, _ *server, path string) { os.Remove(filepath.Join(path, "sha256sum")) },
			"sha256sum, shasum or openssl is needed"},
		"does not run": {nil, func(_ *testing.T, s *server, _ string) {
			a := archive(map[string]string{"llmexport": "#!/bin/sh\nexit 1\n"})
			s.files[latest+archiveName], s.files[latest+"SHA256SUMS"] = a, sums(map[string][]byte{archiveName: a})
		}, "does not run on this machine"},
		"no program": {nil, func(_ *testing.T, s *server, _ string) {
			a := archive(map[string]string{"README": "x"})
			s.files[latest+archiveName], s.files[latest+"SHA256SUMS"] = a, sums(map[string][]byte{archiveName: a})
		}, "does not contain the program"},
		"not an archive": {nil, func(_ *testing.T, s *server, _ string) {
			a := []byte("<html>")
			s.files[latest+archiveName], s.files[latest+"SHA256SUMS"] = a, sums(map[string][]byte{archiveName: a})
		}, "cannot be unpacked"},
		"bad signature": {nil, func(t *testing.T, _ *server, path string) { add(t, path, "cosign", "exit 1") }, "the signature is not valid"},
		"no signer":     {[]string{"--key", "release.pub"}, nil, "--key needs llmexport-sign"},
		"no bundle": {nil, func(t *testing.T, s *server, path string) {
			add(t, path, "cosign", "exit 0")
			delete(s.files, latest+"SHA256SUMS.sigstore.json")
		}, "not signed"},
		"unknown option":  {[]string{"--prefix=/x"}, nil, "unknown option --prefix=/x"},
		"option no value": {[]string{"--prefix"}, nil, "--prefix needs a value"},
		"file in the way": {[]string{"--prefix", "file"}, func(t *testing.T, _ *server, path string) {
			add(t, path, "mkdir", `case $2 in file/*) exit 1 ;; esac; exec /bin/mkdir "$@"`)
		}, "choose another directory with --prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, path := newServer(t), tools(t, "", base...)
			if tc.change != nil {
				tc.change(t, s, path)
			}
			home, out, err := install(t, s, []string{filepath.Join(path, "sh")}, path, tc.args...)
			if err == nil || !strings.Contains(out, tc.want) {
				t.Errorf("%v, no %q in:\n%s", err, tc.want, out)
			}
			if got := installed(t, home); got != "" {
				t.Errorf("installed:\n%s", got)
			}
		})
	}
}

// A version, a prefix, and an upgrade over a former one.
func TestInstallUpgrade(t *testing.T) {
	t.Parallel()
	s, path, prefix := newServer(t), tools(t, "", slices.Concat(needed, []string{"curl", "sha256sum"})...), filepath.Join(t.TempDir(), "a prefix")
	sh := []string{filepath.Join(path, "sh")}
	for _, step := range []struct{ version, want string }{{"v0.1.0", "llmexport 0.1.0 of a test"}, {"", "llmexport 0.2.0 of a test"}} {
		args := []string{"--prefix", prefix}
		if step.version != "" {
			args = append(args, "--version", step.version)
		}
		home, out, err := install(t, s, sh, path+":"+filepath.Join(prefix, "bin"), args...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !strings.Contains(out, "next: llmexport doctor") || strings.Contains(out, "is not in PATH") {
			t.Errorf("advice:\n%s", out)
		}
		if got := installed(t, home); got != "" {
			t.Errorf("in the home:\n%s", got)
		}
		got, err := exec.CommandContext(t.Context(), filepath.Join(prefix, "bin", "llmexport")).Output()
		if err != nil || strings.TrimSpace(string(got)) != step.want {
			t.Errorf("%q, %v, want %q", got, err, step.want)
		}
	}
	if got := installed(t, prefix); got != wantFiles {
		t.Errorf("installed:\n%s", got)
	}
}

// With cosign, its verdict on the digests counts; the identity is that of the release workflow.
func TestInstallCosign(t *testing.T) {
	t.Parallel()
	s, path := newServer(t), tools(t, "", slices.Concat(needed, []string{"curl", "sha256sum"})...)
	add(t, path, "cosign", `printf '%s\n' "$@" > "$HOME/asked"; cat "$4" >> "$HOME/asked"; cat "$2" >> "$HOME/asked"`)
	home, out, err := install(t, s, []string{filepath.Join(path, "sh")}, path)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(home, "asked"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"verify-blob\n", "--bundle\n", "https://token.actions.githubusercontent.com\n", "release\\.yml@refs/tags/v", "\nbundle", archiveName,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("cosign was not given %q:\n%s", want, b)
		}
	}
}
