package main

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
)

// flipped is one bit of a file of a package.
type flipped struct {
	name string
	at   int64
	bit  int
}

// flip changes the bit in dir, and again back.
func (f flipped) flip(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, f.name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	var b [1]byte
	if _, err := file.ReadAt(b[:], f.at); err != nil {
		return err
	}
	b[0] ^= 1 << f.bit
	_, err = file.WriteAt(b[:], f.at)
	return err
}

// TestFlips flips bits of a package of two parts one after the other, LLMEXPORT_FLIPS in all and as many in every file: verify, publish and
// compare end with exit code 3, and name the file. Commands that run or show a package do so as well, or do not read what is
// wrong; they never end otherwise. Every bit is verified; each of the other commands sees a share of them.
func TestFlips(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	flips := 100
	if n, err := strconv.Atoi(os.Getenv("LLMEXPORT_FLIPS")); err == nil {
		flips = n
	}
	dir := filepath.Join(t.TempDir(), "flipped")
	if err := os.CopyFS(dir, os.DirFS(smallPackage(t))); err != nil {
		t.Fatal(err)
	}
	if err := stagetest.AddPart(t.Context(), dir, "draft"); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := []string{manifest.FileName}
	for _, f := range m.Files {
		files = append(files, f.Name)
	}
	source := filepath.Join(families, "qwen3-tied")
	out := filepath.Join(t.TempDir(), "out")
	others := []struct {
		strict bool
		args   []string
	}{
		{true, []string{"publish", dir, out}},
		{true, []string{"compare", dir, "--source", source, "--window", "8"}},
		{false, []string{"generate", dir, "a b", "-n", "1", "--greedy"}},
		{false, []string{"inspect", dir}},
		{false, []string{"template", dir}},
		{false, []string{"tokenize", dir, "a b"}},
		{false, []string{"provenance", dir}},
		{false, []string{"bom", dir}},
	}
	codes := map[string]map[int]int{} // by command
	count := func(command string, code int) {
		if codes[command] == nil {
			codes[command] = map[int]int{}
		}
		codes[command][code]++
	}
	random := rand.New(rand.NewPCG(16, 5))
	missed := 0
	for i := range flips {
		name := files[i%len(files)]
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		f := flipped{name, random.Int64N(info.Size()), random.IntN(8)}
		if err := f.flip(dir); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := called("", "verify", dir, "--windows", "1", "--window", "8")
		if count("verify "+name, code); code != exit.Unverified || !strings.Contains(stdout+stderr, name) {
			missed++
			t.Errorf("bit %d of byte %d of %s: verify ends with %d\n%s%s", f.bit, f.at, name, code, stdout, stderr)
		}
		o := others[random.IntN(len(others))]
		code, stdout, stderr = called("", o.args...)
		if count(o.args[0], code); code != exit.Unverified && (o.strict || code != 0) {
			missed++
			t.Errorf("bit %d of byte %d of %s: %s ends with %d\n%s%s", f.bit, f.at, name, o.args[0], code, stdout, stderr)
		}
		if err := f.flip(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.VerifyFiles(t.Context(), dir); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("something was published")
	}
	for _, command := range slices.Sorted(maps.Keys(codes)) {
		t.Logf("%-25s exit codes %v", command, codes[command])
	}
	t.Logf("%d flipped bits, %d missed", flips, missed)
}
