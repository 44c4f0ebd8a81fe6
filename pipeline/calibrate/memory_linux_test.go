package calibrate

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/llmexport/llmexport/quant"
)

// memoryVariable makes TestTableWithin encode and print what the process took.
const memoryVariable = "LLMEXPORT_TEST_MEMORY"

// A table and a head that take a multiple of the limit are encoded, and their gradients computed, within the least memory and a
// constant.
func TestTableWithin(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	// over covers the program, and garbage between two collections.
	const over = 64 << 20
	d, src := vocabulary(t, 250000, false)
	limit, whole := LeastMemory(d), 16*int64(d.Vocab)*int64(d.Hidden)
	if os.Getenv(memoryVariable) != "" {
		debug.SetMemoryLimit(limit) // as the command does
		gptq := quant.NewGPTQ()
		gptq.Candidates, gptq.Sweeps = 1, 0
		j := newJob(t, d, src, randomText(d, 2, 128), gptq).on(2, limit)
		j.run(t, t.TempDir())
		status, err := os.ReadFile("/proc/self/status")
		check(t, err)
		fmt.Printf("memory %s\n", regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)[1])
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestTableWithin$")
	cmd.Env = append(os.Environ(), memoryVariable+"=1", "GOGC=100") // the default, whatever the tests are run with
	out, err := cmd.CombinedOutput()
	m := regexp.MustCompile(`memory (\d+)`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("no result: %v\n%s", err, out)
	}
	kilobytes, err := strconv.ParseInt(string(m[1]), 10, 64)
	check(t, err)
	t.Logf("%d bytes at most, the least for a run is %d, the table and its codes take %d", kilobytes<<10, limit, whole)
	if kilobytes<<10 > limit+over || limit+over > whole {
		t.Errorf("%d bytes, want at most %d and %d, less than the table and its codes take", kilobytes<<10, limit, over)
	}
}
