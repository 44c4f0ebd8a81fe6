//go:build fused

package depcheck

import (
	"bufio"
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// estimates are the places whose numbers are shown and enter no package and no measurement.
var estimates = []string{"pipeline/effort/", "pipeline/estimate/", "pipeline/progress.go", "publish/figure/", "runtime/bench/"}

// TestFused: on arm64 the compiler makes one instruction of a product and a sum, which rounds once, unless the product is converted: float64(x*y) + z.
// Packages would have other bytes there, and v-v of a product v may not be 0.
func TestFused(t *testing.T) {
	program := filepath.Join(t.TempDir(), "llmexport")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/llmexport")
	build.Dir = root
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	code, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	pcln, err := f.Section(".gopclntab").Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(pcln, text.Addr))
	if err != nil {
		t.Fatal(err)
	}
	meant, seen := 0, map[string]bool{}
	for i := 0; i+4 <= len(code); i += 4 {
		if binary.LittleEndian.Uint32(code[i:])>>24 != 0b00011111 { // FMADD, FMSUB, FNMADD, FNMSUB
			continue
		}
		file, line, fn := table.PCToLine(text.Addr + uint64(i))
		name, ours := strings.CutPrefix(file, module+"/")
		at := fmt.Sprintf("%s:%d", name, line)
		if !ours || fn == nil || strings.HasSuffix(name, ".s") || seen[at] || exempt(name) {
			continue
		}
		seen[at] = true
		if source := lineOf(t, name, line); strings.Contains(source, "math.FMA(") {
			meant++
		} else {
			t.Errorf("%s: a product is fused with a sum: %s", at, strings.TrimSpace(source))
		}
	}
	if meant < 5 {
		t.Errorf("only %d lines with math.FMA were found", meant)
	}
}

func exempt(file string) bool {
	for _, e := range estimates {
		if strings.HasPrefix(file, e) {
			return true
		}
	}
	return false
}

func lineOf(t *testing.T, file string, n int) string {
	t.Helper()
	f, err := os.Open(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for range n {
		s.Scan()
	}
	return s.Text()
}
