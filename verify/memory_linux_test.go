package verify_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/verify"
)

// memoryVariable makes TestMemory evaluate the package in that directory and print what the process took.
const memoryVariable = "LLMEXPORT_TEST_MEMORY"

// memoryFamily has 320 tokens, so that texts are long and quickly evaluated.
const memoryFamily = families + "qwen3-tied"

// An evaluation takes its share of the memory and a constant, however long the text is.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const (
		limit = 32 << 20
		// over covers the program, the mapped package, its tokenizer and the text.
		over = 64 << 20
		// more is what three times the text may take more: half of what its logits of one model would.
		more = 16 << 20
	)
	if dir := os.Getenv(memoryVariable); dir != "" {
		debug.SetMemoryLimit(2 * limit) // as the command does
		short := evaluateWithin(t, dir, limit, 64)
		long := evaluateWithin(t, dir, limit, 192)
		fmt.Printf("memory %d %d\n", short, long)
		return
	}
	dir, err := stagetest.Export(t.Context(), t.TempDir(), memoryFamily, "quantize: {block: 32}\nverify: {enabled: false}")
	if err != nil {
		t.Fatal(err)
	}
	short, long := again(t, dir)
	t.Logf("one batch took %d bytes, three %d", short, long)
	if long > 2*limit+over {
		t.Errorf("%d bytes, want at most twice %d and %d", long, limit, over)
	}
	if long > short+more {
		t.Errorf("one batch took %d bytes, three %d", short, long)
	}
}

// All checks of a package with the vocabulary of Qwen 3 keep the limit: the logits of a window alone would take twice that.
func TestMemoryOfVocabulary(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	const (
		limit = 160 << 20
		// over covers the program, and the mapped package and checkpoint.
		over = 64 << 20
	)
	if dir := os.Getenv(memoryVariable); dir != "" {
		debug.SetMemoryLimit(limit) // as the command does
		s := open(t, filepath.Join(dir, "dist", "small"), "")
		s.Source = openSource(t, filepath.Join(dir, "source"), limit/assemble.VerifyShare)
		s.Options.Window, s.Options.Windows, s.Options.DecodeTokens, s.Options.Memory = 512, 1, 32, limit/assemble.VerifyShare
		before := peak(t)
		res, err := verify.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range res.Checks {
			// Random weights predict nothing.
			if !c.Passed && !c.Skipped && c.Name != "source" {
				t.Errorf("%s: %s", c.Name, c.Detail)
			}
		}
		fmt.Printf("memory %d %d\n", before, peak(t))
		return
	}
	dir := t.TempDir()
	checkpoint := filepath.Join(dir, "source")
	cmd := exec.Command("go", "run", "../internal/synthetic", "-shape", "llama-tiny", "-vocab", "151936", "-out", checkpoint)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := stagetest.Export(t.Context(), dir, checkpoint, "quantize: {method: rtn, block: 32}\nverify: {enabled: false}"); err != nil {
		t.Fatal(err)
	}
	before, most := again(t, dir)
	t.Logf("%d bytes before the checks, %d at most", before, most)
	if most > limit+over {
		t.Errorf("%d bytes, want at most %d and %d", most, limit, over)
	}
}

// evaluateWithin returns the most memory that the process has taken so far.
func evaluateWithin(t *testing.T, dir string, limit int64, windows int) int {
	s := open(t, dir, "")
	s.Source = openSource(t, memoryFamily, limit)
	s.Options.Window, s.Options.Windows, s.Options.Memory = 128, windows, limit
	e, err := verify.Evaluate(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%d windows\n", e.Windows)
	return peak(t)
}

// again runs the test of t in a process of its own, which gets dir and prints two numbers.
func again(t *testing.T, dir string) (first, second int) {
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), memoryVariable+"="+dir, "GOGC=100") // the default, whatever the tests are run with
	out, err := cmd.CombinedOutput()
	if m := regexp.MustCompile(`memory (\d+) (\d+)`).FindSubmatch(out); err == nil && m != nil {
		first, _ = strconv.Atoi(string(m[1]))
		second, _ = strconv.Atoi(string(m[2]))
	}
	if second == 0 {
		t.Fatalf("no result: %v\n%s", err, out)
	}
	return first, second
}

// peak is the most memory that the process has taken so far.
func peak(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if err != nil || m == nil {
		t.Fatalf("no VmHWM: %v", err)
	}
	kilobytes, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}
