//go:build release && linux

package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// What make release-snapshot has made.
const (
	out  = root + "/bin/release"
	dist = out + "/dist"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// version is that of the snapshot, and day its commit's.
func version(t *testing.T) (version string, date time.Time) {
	t.Helper()
	var m struct {
		Version string    `json:"version"`
		Commit  string    `json:"commit"`
		Date    time.Time `json:"date"`
	}
	if err := json.Unmarshal(read(t, dist+"/metadata.json"), &m); err != nil {
		t.Fatal(err)
	}
	return m.Version, m.Date
}

// command runs a program that the test needs, or skips the test where it is not installed.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed; make release-test installs what it can", name)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, b)
	}
	return string(b)
}

// listed returns SHA256SUMS by file.
func listed(t *testing.T) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for line := range strings.Lines(string(read(t, dist+"/SHA256SUMS"))) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = digest
	}
	return sums
}

var systems = []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64", "windows-arm64"}

func archiveOf(program, system string) string {
	if strings.HasPrefix(system, "windows") {
		return program + "-" + system + ".zip"
	}
	return program + "-" + system + ".tar.gz"
}

// A release has these files and no others, each with its digest.
func TestFiles(t *testing.T) {
	v, _ := version(t)
	debian, rpm := strings.ReplaceAll(v, "-", "~"), strings.ReplaceAll(v, "-", "~")
	want := []string{"install.sh", "llmexport_" + debian + "_amd64.deb", "llmexport_" + debian + "_arm64.deb",
		"llmexport-" + rpm + "-1.x86_64.rpm", "llmexport-" + rpm + "-1.aarch64.rpm"}
	for _, s := range systems {
		for _, p := range []string{"llmexport", "llmexport-sign"} {
			want = append(want, archiveOf(p, s), p+"-"+s+".cdx.json")
		}
	}
	got := listed(t)
	for _, name := range want {
		file := dist + "/" + name
		if name == "install.sh" {
			file = root + "/install.sh"
		}
		if d := sum(read(t, file)); got[name] != d {
			t.Errorf("%s has the digest %s, listed is %q", name, d, got[name])
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s is not expected", name)
	}
}

func TestSignature(t *testing.T) {
	sign, err := filepath.Abs(root + "/bin/llmexport-sign")
	if err != nil {
		t.Fatal(err)
	}
	key := out + "/trial.pub"
	command(t, "", sign, "verify-file", "--key", key, dist+"/SHA256SUMS")
	dir := t.TempDir()
	for name, b := range map[string][]byte{
		"SHA256SUMS": append(read(t, dist+"/SHA256SUMS"), '\n'), "SHA256SUMS.sigstore.json": read(t, dist+"/SHA256SUMS.sigstore.json"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	err = exec.CommandContext(t.Context(), sign, "verify-file", "--key", key, filepath.Join(dir, "SHA256SUMS")).Run()
	if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.ExitCode() != 3 {
		t.Errorf("a changed file: %v", err)
	}
}

// packed is a file of an archive.
type packed struct {
	mode    os.FileMode
	time    time.Time
	content []byte
}

func unpack(t *testing.T, name string) map[string]packed {
	t.Helper()
	files := map[string]packed{}
	b := read(t, name)
	if strings.HasSuffix(name, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			files[f.Name] = packed{f.Mode(), f.Modified.UTC(), content}
		}
		return files
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = packed{h.FileInfo().Mode(), h.ModTime.UTC(), content}
		}
	}
}

// programOf returns the program in an archive.
func programOf(t *testing.T, program, system string) []byte {
	t.Helper()
	name := program
	if strings.HasPrefix(system, "windows") {
		name += ".exe"
	}
	f, ok := unpack(t, dist+"/"+archiveOf(program, system))[name]
	if !ok || f.mode.Perm() != 0o755 {
		t.Fatalf("no %s in %s, or of mode %v", name, archiveOf(program, system), f.mode)
	}
	return f.content
}

func TestArchives(t *testing.T) {
	for _, system := range systems {
		info, err := buildinfo.Read(bytes.NewReader(programOf(t, "llmexport", system)))
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if got := settings["GOOS"] + "-" + settings["GOARCH"]; got != system || settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
			t.Errorf("the program for %s: %v", system, settings)
		}
		files, pages := unpack(t, dist+"/"+archiveOf("llmexport", system)), 0
		for name, f := range files {
			if strings.HasPrefix(name, "share/man/man1/llmexport") {
				pages++
			}
			if age := time.Since(f.time); age < 0 || len(f.content) == 0 {
				t.Errorf("%s of %s: %v, %d bytes", name, system, f.time, len(f.content))
			}
		}
		for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "share/man/man1/llmexport-run.1.gz",
			"share/bash-completion/completions/llmexport", "share/zsh/site-functions/_llmexport", "share/powershell/llmexport.ps1"} {
			if _, ok := files[name]; !ok {
				t.Errorf("%s of %s is missing", name, system)
			}
		}
		if pages < 25 {
			t.Errorf("%d manual pages of %s", pages, system)
		}
	}
}

// runs demands that a program prints the version of the snapshot.
func runs(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	v, _ := version(t)
	b, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(b), "llmexport "+v+" go") {
		t.Errorf("%q: %v\n%s", cmd.Args, err, b)
	}
}

// same demands that a file is the program of the archive for Linux on amd64, and runs it.
func same(t *testing.T, file string) {
	t.Helper()
	if sum(read(t, file)) != sum(programOf(t, "llmexport", "linux-amd64")) {
		t.Errorf("%s is not the program of the archive", file)
	}
	if runtime.GOARCH == "amd64" {
		runs(t, exec.CommandContext(t.Context(), file, "--version"))
	}
}

func glob(t *testing.T, pattern string) string {
	t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %q, %v", pattern, list, err)
	}
	abs, err := filepath.Abs(list[0])
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// The packages are installed below a new root by the package managers, run there, and removed again.
func TestDeb(t *testing.T) {
	deb, dir := glob(t, dist+"/*_amd64.deb"), t.TempDir()
	for _, want := range []string{"Package: llmexport\n", "Architecture: amd64\n", "Section: science\n", "Maintainer: "} {
		if got := command(t, "", "dpkg-deb", "-f", deb); !strings.Contains(got, want) || strings.Contains(got, "Depends:") {
			t.Errorf("no %q, or dependencies:\n%s", want, got)
		}
	}
	if os.Getuid() != 0 {
		command(t, "", "dpkg-deb", "-x", deb, dir)
		same(t, dir+"/usr/bin/llmexport")
		return
	}
	for _, d := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(dir+"/var/lib/dpkg/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/var/lib/dpkg/status", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "", "dpkg", "--root="+dir, "--log=/dev/null", "-i", deb)
	inRoot(t, dir)
	for _, file := range []string{"share/zsh/vendor-completions/_llmexport", "share/doc/llmexport/copyright"} {
		read(t, dir+"/usr/"+file)
	}
	command(t, "", "dpkg", "--root="+dir, "--log=/dev/null", "-r", "llmexport")
	if _, err := os.Stat(dir + "/usr/bin/llmexport"); err == nil {
		t.Error("removing the package leaves the program")
	}
}

func TestRPM(t *testing.T) {
	rpm, dir := glob(t, dist+"/*.x86_64.rpm"), t.TempDir()
	if os.Getuid() != 0 {
		command(t, dir, "sh", "-c", `rpm2cpio "$1" | cpio -idm --quiet`, "sh", rpm)
		same(t, dir+"/usr/bin/llmexport")
		return
	}
	command(t, "", "rpm", "--root", dir, "--dbpath", "/var/lib/rpm", "--ignorearch", "--ignoreos", "-i", rpm)
	inRoot(t, dir)
	read(t, dir+"/usr/share/zsh/site-functions/_llmexport")
	if got := command(t, "", "rpm", "--root", dir, "--dbpath", "/var/lib/rpm", "-q", "--requires", "llmexport"); strings.Contains(got, "lib") {
		t.Errorf("requires %s", got)
	}
	command(t, "", "rpm", "--root", dir, "--dbpath", "/var/lib/rpm", "-e", "llmexport")
	if _, err := os.Stat(dir + "/usr/bin/llmexport"); err == nil {
		t.Error("removing the package leaves the program")
	}
}

// inRoot runs the installed program with dir as its root.
func inRoot(t *testing.T, dir string) {
	t.Helper()
	same(t, dir+"/usr/bin/llmexport")
	mountProc(t, dir)
	cmd := exec.CommandContext(t.Context(), "/usr/bin/llmexport", "--version")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: dir}
	runs(t, cmd)
	if pages, _ := filepath.Glob(dir + "/usr/share/man/man1/llmexport*.1.gz"); len(pages) < 25 {
		t.Errorf("%d manual pages", len(pages))
	}
}

// mountProc gives a root the directory /proc, as every container has it.
func mountProc(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir+"/proc", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("proc", dir+"/proc", "proc", 0, ""); err != nil {
		t.Skipf("/proc cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir+"/proc", 0); err != nil {
			t.Error(err)
		}
	})
}

// The manifests of Homebrew and Scoop name the archives with their digests.
func TestCask(t *testing.T) {
	cask, sums := string(read(t, dist+"/homebrew/Casks/llmexport.rb")), listed(t)
	for _, system := range systems[:4] {
		a := archiveOf("llmexport", system)
		if !strings.Contains(cask, sums[a]) || !strings.Contains(cask, a) {
			t.Errorf("%s or its digest is missing in\n%s", a, cask)
		}
	}
	for line := range strings.Lines(cask) {
		kind, file, _ := strings.Cut(strings.TrimSpace(line), ` "`)
		file = strings.TrimSuffix(file, `"`)
		if slices.Contains([]string{"binary", "manpage", "bash_completion", "zsh_completion", "fish_completion"}, kind) {
			if _, ok := unpack(t, dist+"/"+archiveOf("llmexport", "darwin-arm64"))[file]; !ok {
				t.Errorf("the archive has no %s", file)
			}
		}
	}
	command(t, "", "ruby", "-wc", dist+"/homebrew/Casks/llmexport.rb")
}

func must(v string, _ time.Time) string { return v }

func TestScoop(t *testing.T) {
	var s struct {
		Version      string `json:"version"`
		Architecture map[string]struct {
			URL        string   `json:"url"`
			Hash       string   `json:"hash"`
			Bin        []string `json:"bin"`
			ExtractDir string   `json:"extract_dir"`
		} `json:"architecture"`
	}
	if err := json.Unmarshal(read(t, dist+"/scoop/bucket/llmexport.json"), &s); err != nil {
		t.Fatal(err)
	}
	for arch, system := range map[string]string{"64bit": "windows-amd64", "arm64": "windows-arm64"} {
		a := s.Architecture[arch]
		if path.Base(a.URL) != archiveOf("llmexport", system) || a.Hash != listed(t)[path.Base(a.URL)] || len(a.Bin) != 1 {
			t.Errorf("%s: %+v", arch, a)
			continue
		}
		if _, ok := unpack(t, dist+"/"+path.Base(a.URL))[path.Join(a.ExtractDir, a.Bin[0])]; !ok {
			t.Errorf("%s has no %s in %q", a.URL, a.Bin[0], a.ExtractDir)
		}
	}
}

// Bills are of the programs that the archives contain.
func TestBills(t *testing.T) {
	for _, system := range systems {
		for _, program := range []string{"llmexport", "llmexport-sign"} {
			var bill struct {
				Metadata struct {
					Component struct {
						Name   string `json:"name"`
						Hashes []struct {
							Content string `json:"content"`
						} `json:"hashes"`
					} `json:"component"`
				} `json:"metadata"`
				Components []struct {
					PURL string `json:"purl"`
				} `json:"components"`
			}
			if err := json.Unmarshal(read(t, dist+"/"+program+"-"+system+".cdx.json"), &bill); err != nil {
				t.Fatal(err)
			}
			c := bill.Metadata.Component
			if c.Name != program || len(c.Hashes) != 1 || c.Hashes[0].Content != sum(programOf(t, program, system)) || len(bill.Components) < 10 {
				t.Errorf("%s for %s: %+v, %d parts", program, system, c, len(bill.Components))
			}
		}
	}
}

// The image contains the program of the archive, which runs with nothing but the image's files, as its user.
func TestImage(t *testing.T) {
	l, err := layout.ImageIndexFromPath(out + "/image")
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(l); err != nil {
		t.Fatal(err)
	}
	top, err := l.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		t.Fatal(top, err)
	}
	index, err := l.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		images, err := partial.FindImages(index, match.Platforms(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil || len(images) != 1 {
			t.Fatal(len(images), err)
		}
		dir := t.TempDir()
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for another user
			t.Fatal(err)
		}
		extract(t, images[0], dir)
		if sum(read(t, dir+"/llmexport")) != sum(programOf(t, "llmexport", "linux-"+arch)) {
			t.Errorf("the program for %s is not that of the archive", arch)
		}
		if os.Getuid() != 0 || arch != runtime.GOARCH {
			continue
		}
		mountProc(t, dir)
		cmd := exec.CommandContext(t.Context(), "/llmexport", "--version")
		cmd.Dir, cmd.Env = "/work", []string{"HOME=/work"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		runs(t, cmd)
		doctor := exec.CommandContext(t.Context(), "/llmexport", "doctor")
		doctor.Dir, doctor.Env, doctor.SysProcAttr = cmd.Dir, append(cmd.Env, "HF_HUB_OFFLINE=1"), cmd.SysProcAttr
		if b, err := doctor.CombinedOutput(); err != nil || !strings.Contains(string(b), "no problems") {
			t.Errorf("doctor in the image: %v\n%s", err, b)
		}
	}
}

func extract(t *testing.T, image v1.Image, dir string) {
	t.Helper()
	fs := mutate.Extract(image)
	defer fs.Close()
	for r := tar.NewReader(fs); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name, mode := filepath.Join(dir, h.Name), h.FileInfo().Mode()
		if h.Typeflag == tar.TypeDir {
			err = errors.Join(os.MkdirAll(name, 0o755), os.Chmod(name, mode))
		} else {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, b, mode))
			}
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(name, h.Uid, h.Gid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// skopeo copies the image, as the workflow does, without changing its digest.
func TestImageCopy(t *testing.T) {
	to := t.TempDir()
	command(t, "", "skopeo", "copy", "--quiet", "--all", "--preserve-digests", "oci:"+out+"/image", "oci:"+to+"/copy:latest")
	var was, is struct {
		Manifests []struct {
			Digest string `json:"digest"`
		} `json:"manifests"`
	}
	if err := errors.Join(json.Unmarshal(read(t, out+"/image/index.json"), &was), json.Unmarshal(read(t, to+"/copy/index.json"), &is)); err != nil {
		t.Fatal(err)
	}
	if len(was.Manifests) != 1 || len(is.Manifests) != 1 || was.Manifests[0] != is.Manifests[0] {
		t.Errorf("copied %+v, was %+v", is, was)
	}
}

// install.sh installs from the snapshot, with its signature checked by a key.
func TestInstallSnapshot(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("there are no releases for this machine")
	}
	files := http.FileServer(http.Dir(dist))
	srv := httptest.NewServer(http.StripPrefix("/latest/download", files))
	t.Cleanup(srv.Close)
	bin, err := filepath.Abs(root + "/bin")
	if err != nil {
		t.Fatal(err)
	}
	key, err := filepath.Abs(out + "/trial.pub")
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"dash", "bash", "busybox"} {
		program, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed", shell)
			continue
		}
		args := []string{program}
		if shell == "busybox" {
			args = append(args, "sh")
		}
		path := os.Getenv("PATH") + ":" + bin
		home, text, err := install(t, &server{Server: srv}, args, path, "--key", key)
		if err != nil || !strings.Contains(text, "installed llmexport "+must(version(t))) {
			t.Fatalf("%s: %v\n%s", shell, err, text)
		}
		runs(t, exec.CommandContext(t.Context(), filepath.Join(home, ".local", "bin", "llmexport"), "--version"))
	}
}
