package verify_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"

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
	cmd := exec.Command(os.Args[0], "-test.run", "^TestMemory$")
	cmd.Env = append(os.Environ(), memoryVariable+"="+dir, "GOGC=100") // the default, whatever the tests are run with
	out, err := cmd.CombinedOutput()
	var short, long int
	if m := regexp.MustCompile(`memory (\d+) (\d+)`).FindSubmatch(out); err == nil && m != nil {
		short, _ = strconv.Atoi(string(m[1]))
		long, _ = strconv.Atoi(string(m[2]))
	}
	if long == 0 {
		t.Fatalf("no result: %v\n%s", err, out)
	}
	t.Logf("one batch took %d bytes, three %d", short, long)
	if long > 2*limit+over {
		t.Errorf("%d bytes, want at most twice %d and %d", long, limit, over)
	}
	if long > short+more {
		t.Errorf("one batch took %d bytes, three %d", short, long)
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
